"""From what the ranks have found to one line for each check; plain values in, text out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from tutorial_lib.cluster.preflight.doors import Door, Knock
from tutorial_lib.cluster.preflight.facts import Facts
from tutorial_lib.display.findings import Finding, Verdict
from tutorial_lib.distributed import gpu_placement
from tutorial_lib.distributed.gpu_placement import Seat

SKEW_S = 1.0
LITTLE_BYTES = 1 << 30
GIB = 1 << 30
MOST_NAMED = 4
SAME = "install the same on all hosts"


def hosts(facts: Sequence[Facts]) -> Finding:
    """Which ranks are where."""
    homes = {fact.rank: fact.host for fact in facts}
    parts = [f"{host} ({_ranks(_of(homes, host))})" for host in _each(homes)]
    text = f"{_count(len(facts), 'rank')} on {_count(len(parts), 'host')}: {'; '.join(parts)}"
    return Finding(Verdict.OK, "Hosts", text)


def versions(facts: Sequence[Facts]) -> Finding:
    """Whether all ranks have the same Python, packages, MPI and files of this package."""
    known = [fact for fact in facts if fact.versions]
    if problem := _unknown(facts, "versions"):
        return Finding(Verdict.FIX, "Versions", problem)
    names = list(dict.fromkeys(name for fact in known for name in fact.versions))
    differing = []
    for name in names:
        values = {fact.rank: fact.versions.get(name, "missing") for fact in known}
        if len(set(values.values())) > 1:
            parts = [f"{v} on {who(known, v, values)}" for v in dict.fromkeys(values.values())]
            differing.append(f"{name} is {', '.join(parts)}")
    if differing:
        return Finding(Verdict.FIX, "Versions", f"{'; '.join(differing)}: {SAME}")
    if missing := [name for name in names if known[0].versions[name] == "missing"]:
        text = f"{', '.join(missing)}: missing on all ranks: install gan-tutorial again"
        return Finding(Verdict.FIX, "Versions", text)
    shown = [f"{name} {version}" for name, version in known[0].versions.items()]
    return Finding(Verdict.OK, "Versions", f"equal on all ranks: {', '.join(shown)}")


def ports(doors: Sequence[Door], knocks: Sequence[Knock]) -> Finding:
    """Whether every host reaches every other, both ways, at a port that the system chose."""
    if len(doors) < 2:
        return Finding(
            Verdict.OK, "Ports", "all ranks are on one host, so no other need be reached"
        )
    shut, by_address = [], []
    by_host = {door.host: door for door in doors}
    pairs = [(a.host, b.host) for a in doors for b in doors if a.host != b.host]
    for origin, host in pairs:
        tried = [k for k in knocks if (k.origin, k.host) == (origin, host)]
        name = by_host[host].name
        reached = [k.at for k in tried if not k.problem]
        if not reached:
            why = ", ".join(f"{k.at}: {k.problem}" for k in tried) or "it did not try"
            shut.append(f"{origin} can't reach {host} ({why})")
        elif name not in reached:
            why = next((k.problem for k in tried if k.at == name), "not tried")
            by_address.append(f"{origin} reaches {host} at {reached[0]}, not as {name} ({why})")
    if shut:
        ranges = " and ".join(sorted({door.ports for door in doors if door.ports}))
        which = f" {ranges}" if ranges else ""
        remedy = f"let TCP through between the hosts both ways, all ports{which}"
        return Finding(Verdict.FIX, "Ports", f"{_some(shut)}: {remedy}")
    if by_address:
        remedy = "put the names into the DNS or /etc/hosts, or gloo can't be used"
        return Finding(Verdict.NOTE, "Ports", f"{_some(by_address)}: {remedy}")
    return Finding(Verdict.OK, "Ports", f"open both ways between {_count(len(doors), 'host')}")


def clocks(doors: Sequence[Door], knocks: Sequence[Knock]) -> Finding:
    """Whether the hosts' clocks agree."""
    if len(doors) < 2:
        return Finding(Verdict.OK, "Clocks", "one host, one clock")
    origin = doors[0].host
    measured = {}
    for door in doors[1:]:
        tries = [k for k in knocks if (k.origin, k.host) == (origin, door.host) and not k.problem]
        if tries:
            measured[door.host] = min(tries, key=lambda k: k.within_s)
    if unknown := [door.host for door in doors[1:] if door.host not in measured]:
        text = f"{origin} can't ask {', '.join(unknown)}: see Ports"
        return Finding(Verdict.NOTE, "Clocks", text)
    if wrong := [k for k in measured.values() if abs(k.ahead_s) - k.within_s > SKEW_S]:
        ways = ["ahead of" if k.ahead_s > 0 else "behind" for k in wrong]
        parts = [
            f"{k.host} is {abs(k.ahead_s):.1f} s {way} {origin}"
            for k, way in zip(wrong, ways, strict=True)
        ]
        remedy = "times of files and logs will mislead: set the clocks by NTP, for example chrony"
        return Finding(Verdict.NOTE, "Clocks", f"{_some(parts)}: {remedy}")
    apart_s = max(abs(k.ahead_s) for k in measured.values())
    within_s = max(k.within_s for k in measured.values())
    text = f"at most {1e3 * apart_s:.1f} ms apart (within {1e3 * within_s:.1f} ms)"
    return Finding(Verdict.OK, "Clocks", text)


def data(facts: Sequence[Facts], folder: str) -> Finding:
    """Whether all ranks read the same data."""
    where = folder or "the package's MNIST"
    if unread := {f.rank: f.data_problem for f in facts if f.data_problem}:
        parts = [f"{problem} on {who(facts, problem, unread)}" for problem in _each(unread)]
        remedy = "copy the data to the same folder on each host, or use a shared one"
        return Finding(Verdict.FIX, "Data", f"{_some(parts)}: {remedy}")
    differing = []
    for name in sorted({name for fact in facts for name in fact.files}):
        values = {fact.rank: fact.files.get(name, "missing") for fact in facts}
        if len(set(values.values())) > 1:
            groups = [
                "missing" if v == "missing" else f"{v[:12]}" for v in dict.fromkeys(values.values())
            ]
            parts = [
                f"{group} on {who(facts, v, values)}"
                for group, v in zip(groups, dict.fromkeys(values.values()), strict=True)
            ]
            differing.append(f"{name} is {', '.join(parts)}")
    if differing:
        text = f"{where}: {_some(differing)}: copy the same files to each host"
        return Finding(Verdict.FIX, "Data", text)
    files = facts[0].files
    is_summed = not any(value.endswith(" bytes") for value in files.values())
    what = "checksums" if is_summed else "names and sizes (too much to sum up)"
    text = f"{where}: {_count(len(files), 'file')}, equal {what} on all ranks"
    return Finding(Verdict.OK, "Data", text)


def checkpoints(facts: Sequence[Facts], folder: str) -> Finding:
    """Whether rank 0 can write checkpoints."""
    main = facts[0]
    if main.write_problem:
        remedy = "name another folder, or make this one writable"
        text = f"rank 0 on {main.host} can't write to {main.write_problem}: {remedy}"
        return Finding(Verdict.FIX, "Checkpoints", text)
    free = main.free_bytes or 0
    text = f"rank 0 on {main.host} can write to {folder}, {free / GIB:.1f} GiB free"
    if free < LITTLE_BYTES:
        return Finding(Verdict.NOTE, "Checkpoints", f"{text}: make room")
    return Finding(Verdict.OK, "Checkpoints", text)


def gpus(facts: Sequence[Facts]) -> Finding:
    """Which rank computes on what, and whether NCCL is the same everywhere."""
    if problem := _unknown(facts, "GPUs"):
        return Finding(Verdict.NOTE, "GPUs", problem)
    seats = [Seat(f.host, f.local_rank, f.gpus, bool(f.nccl) or not f.gpus, f.wish) for f in facts]
    try:
        wanted = gpu_placement.common_wish(seats)
    except ValueError as error:
        return Finding(Verdict.FIX, "GPUs", str(error))
    placed = [gpu_placement.place(seats, n, "mpi4py", wanted) for n in range(len(seats))]
    if placed[0].note:
        return Finding(Verdict.NOTE, "GPUs", placed[0].note)
    if placed[0].gpu is None:
        chosen = "not to be used" if wanted == "cpu" else "none that torch can use"
        return Finding(Verdict.OK, "GPUs", f"{chosen}: all ranks compute on CPUs")
    libraries = {fact.rank: fact.nccl for fact in facts}
    if len(set(libraries.values())) > 1:
        parts = [f"{v} on {who(facts, v, libraries)}" for v in _each(libraries)]
        return Finding(Verdict.FIX, "GPUs", f"NCCL is {', '.join(parts)}: {SAME}")
    devices = ", ".join(f"rank {n}: cuda:{p.gpu}" for n, p in enumerate(placed[:8]))
    more = " ..." if len(placed) > 8 else ""
    text = f"one for each rank, NCCL {facts[0].nccl} ({devices}{more})"
    return Finding(Verdict.OK, "GPUs", text)


def absent(problems: Mapping[int, str]) -> Finding:
    """Ranks that could not look at all."""
    parts = [f"{_ranks(_of(problems, p))}: {p}" for p in _each(problems)]
    remedy = f"if a module is missing there, {SAME}"
    return Finding(Verdict.FIX, "Ranks", f"no answer from {_some(parts)}: {remedy}")


def who(facts: Sequence[Facts], value: str, values: Mapping[int, str]) -> str:
    """The ranks that have a value, with their hosts: "ranks 2-3 (node2)"."""
    chosen = [fact for fact in facts if values.get(fact.rank) == value]
    names = ", ".join(dict.fromkeys(fact.host for fact in chosen))
    ranks = [fact.rank for fact in chosen]
    return f"{_ranks(ranks)} ({names})"


def spans(numbers: Sequence[int]) -> str:
    """Write numbers in order with what follows on each other drawn together: "0-3, 6"."""
    parts = []
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        parts.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return ", ".join(parts)


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {spans(numbers)}"


def _unknown(facts: Sequence[Facts], subject: str) -> str:
    """Which ranks could not look at something, and why; "" if all could."""
    problems = {f.rank: f.problems[subject] for f in facts if subject in f.problems}
    return _some([f"{p} on {who(facts, p, problems)}" for p in _each(problems)])


def _each(values: Mapping[int, str]) -> Iterator[str]:
    return iter(dict.fromkeys(values.values()))


def _of(values: Mapping[int, str], value: str) -> list[int]:
    return [rank for rank, found in values.items() if found == value]


def _some(parts: Sequence[str]) -> str:
    more = f"; and {len(parts) - MOST_NAMED} more" if len(parts) > MOST_NAMED else ""
    return "; ".join(parts[:MOST_NAMED]) + more


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
