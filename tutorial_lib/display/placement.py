"""Who lives where: hosts as boxes, their slots in them, and a rank in each slot that is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.patches import Rectangle

from tutorial_lib.display.palette import INK, MUTED, PAPER, style
from tutorial_lib.display.picture import Picture, new_figure

SLOTS_IN_A_ROW = 8
SLOT_INCHES = 0.62


def placement_picture(slots: Mapping[str, int], homes: Sequence[str]) -> Picture:
    """Draw hosts, their slots, and the ranks in these.

    Args:
        slots: Of each host, in their order.
        homes: The host of rank 0, 1, ...; more ranks than slots are drawn in red frames.

    Raises:
        ValueError: A rank lives on a host that isn't there.
    """
    lost = sorted(set(homes) - set(slots))
    if lost:
        raise ValueError(f"ranks live on {', '.join(lost)}, but there are {', '.join(slots)}")
    held = {host: [r for r, home in enumerate(homes) if home == host] for host in slots}
    places = {host: max(count, len(held[host]), 1) for host, count in slots.items()}
    columns = min(SLOTS_IN_A_ROW, max(places.values()))
    heights = {host: -(-count // columns) for host, count in places.items()}
    figure = new_figure(
        SLOT_INCHES * (columns + 3.4), SLOT_INCHES * (sum(heights.values()) + 0.4 * len(slots))
    )
    axes = figure.add_subplot()
    top = 0.0
    for number, (host, ranks) in enumerate(held.items()):
        look = style(number)
        axes.add_patch(
            Rectangle(
                (-2.9, top),
                columns + 3.0,
                heights[host] + 0.1,
                facecolor="none",
                edgecolor=INK,
                linewidth=1.4,
            )
        )
        middle = top + heights[host] / 2 + 0.05
        axes.text(-2.75, middle, f"{host}\n{_slots(slots[host])}", va="center", fontsize=10)
        for place in range(places[host]):
            x, y = place % columns, top + place // columns + 0.05
            is_taken, is_extra = place < len(ranks), place >= slots[host]
            axes.add_patch(
                Rectangle(
                    (x + 0.06, y + 0.06),
                    0.88,
                    0.88,
                    facecolor=look.colour if is_taken else PAPER,
                    edgecolor="#b00020" if is_extra else MUTED,
                    linewidth=2.4 if is_extra else 1.0,
                    linestyle="-" if is_taken else ":",
                )
            )
            if is_taken:
                number_text = axes.text(x + 0.5, y + 0.5, str(ranks[place]), fontsize=11)
                number_text.set(ha="center", va="center", color=look.on_colour)
        top += heights[host] + 0.4
    axes.set_xlim(-3.0, columns + 0.2)
    axes.set_ylim(top, -0.1)
    axes.set_aspect("equal")
    axes.axis("off")
    return Picture(
        figure, " ".join(_story(host, slots[host], ranks) for host, ranks in held.items())
    )


def _slots(count: int) -> str:
    return f"{count} slot{'s' * (count != 1)}"


def _story(host: str, slots: int, ranks: Sequence[int]) -> str:
    who = f"rank{'s' * (len(ranks) != 1)} {', '.join(map(str, ranks))}" if ranks else "no rank"
    over = len(ranks) - slots
    more = f", {over} more than it has slots" if over > 0 else ""
    return f"Host {host} with {_slots(slots)}: {who}{more}."
