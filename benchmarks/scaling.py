"""Strong and weak scaling of the GAN, and what a model makes of it for up to 1,024 ranks.

python benchmarks/scaling.py                           on 1, 2, ... ranks, as many as cores
python benchmarks/scaling.py --ranks 1 2 4             on these
python benchmarks/scaling.py --gbit-per-s 100 --latency-us 2 --ranks-per-host 64
python benchmarks/scaling.py --load FILE               from measurements that --save has kept

In each round the numbers of ranks take turns, each under mpiexec with one thread a rank: steps with
1,024 samples for all ranks (strong) and for each rank (weak), with few samples, and in few bits;
then all-reduces of 1 B to 67 MB. Of a message, the quickest in a round counts; everything is the
median of the rounds. The model's latency and bandwidth within a host are fitted to those
all-reduces; those between hosts are given.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from measuring import print_picture, print_table
from measuring.ranks import run_under_mpiexec

from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.display.costs import duration, size
from tutorial_lib.display.picture import Picture
from tutorial_lib.display.scaling import (
    Panel,
    Series,
    count,
    measured_and_modelled,
    rate,
    share_bars,
)
from tutorial_lib.distributed import session, topology
from tutorial_lib.distributed.cost_model import PAIRWISE, Link, all_reduce_s, collective_s
from tutorial_lib.distributed.cost_on_hosts import Layout
from tutorial_lib.learners.quantization import LEGAL_BITS, PLAIN_BITS
from tutorial_lib.training.scaling_study import (
    Study,
    layouts,
    measure,
    medians,
    round_from_json,
)

MINIBATCH_SIZE = 1024
PREDICTED = tuple(8 << k for k in range(8))  # 8 to 1,024 ranks
WAYS = (  # a name, bits, whether hierarchical, and whether ranks are dealt out by node
    ("float32, flat", PLAIN_BITS, False, False),
    ("float32, flat, dealt out by node", PLAIN_BITS, False, True),
    ("float32, hierarchical", PLAIN_BITS, True, False),
    ("1 bit, flat", 1, False, False),
    ("1 bit, hierarchical", 1, True, False),
)


def main() -> None:
    options = parse_arguments()
    if options.result:
        with session.script() as ranks:
            found = measure(options.minibatch_size, options.steps)
            if ranks.is_main:
                Path(options.result).write_text(json.dumps(found.as_json()))
        return
    if options.load:
        kept = json.loads(Path(options.load).read_text(encoding="utf-8"))
    else:
        kept = measured(options)
        if options.save:
            with atomic_write(options.save, "w", encoding="utf-8") as file:
                json.dump(kept, file)
    found = medians(round_from_json(each) for each in kept["rounds"])
    study = Study(kept["minibatch_size"], kept["cores"], found)
    print_study(study, kept)
    between = Link(options.latency_us * 1e-6, 8e-9 / options.gbit_per_s)
    print_predictions(study, between, options.ranks_per_host, options.predict)


def parse_arguments() -> argparse.Namespace:
    cores = topology.available_cores()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=list(range(1, cores + 1)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="in a row, of each kind")
    parser.add_argument("--minibatch-size", type=int, default=MINIBATCH_SIZE)
    parser.add_argument("--ranks-per-host", type=int, default=8, help="of the hosts to predict")
    parser.add_argument("--predict", type=int, nargs="+", default=PREDICTED, help="ranks")
    parser.add_argument("--latency-us", type=float, default=25.0, help="between these hosts")
    parser.add_argument("--gbit-per-s", type=float, default=10.0, help="between these hosts")
    parser.add_argument("--save", metavar="FILE", help="keep the measurements")
    parser.add_argument("--load", metavar="FILE", help="don't measure, take what --save has kept")
    parser.add_argument("--result", help=argparse.SUPPRESS)  # this is one of the ranks
    options = parser.parse_args()
    if min(options.ranks) < 1 or not set(options.ranks) >= {1} or max(options.ranks) < 2:
        parser.error("--ranks must have 1, to compare with, and 2 or more, to have messages")
    if min(options.rounds, options.steps, options.ranks_per_host, options.latency_us) <= 0:
        parser.error("--rounds, --steps, --ranks-per-host and --latency-us must be above 0")
    if options.gbit_per_s <= 0:
        parser.error("--gbit-per-s must be above 0")
    return options


def measured(options: argparse.Namespace) -> dict[str, object]:
    """Let the numbers of ranks take turns."""
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "round.json")
        for turn in range(1, options.rounds + 1):
            for ranks in sorted(set(options.ranks)):
                print(f"round {turn} of {options.rounds}: {ranks} ranks", file=sys.stderr)
                arguments = ["--result", str(result), "--steps", str(options.steps)]
                arguments += ["--minibatch-size", str(options.minibatch_size)]
                run_under_mpiexec(__file__, ranks, *arguments)
                rounds.append(json.loads(result.read_text()))
    return {
        "minibatch_size": options.minibatch_size,
        "steps": options.steps,
        "turns": options.rounds,
        "cores": topology.available_cores(),
        "rounds": rounds,
    }


def print_study(study: Study, kept: dict[str, object]) -> None:
    """What was measured, then how well the model agrees with it."""
    print(
        f"Measured: medians of {kept['turns']} rounds of {kept['steps']} steps, one thread a rank, "
        f"on {study.cores} cores."
    )
    crowded = [ranks for ranks in study.counts if ranks > study.cores]
    if crowded:
        print(
            f"\n{' and '.join(map(str, crowded))} ranks have no core each: they wait for one "
            "another's cores, and the model is not fitted to them."
        )
    print("\n## Steps, measured")
    print_table(
        ["", "samples in a step", "samples/s", "efficiency", "working", "waiting", "moving data"],
        step_rows(study),
    )
    print_picture(part_picture(study), "scaling_parts")
    print("## Bits, measured")
    print_table(["bits", "ranks", "bytes in a step", "samples/s", "communication"], bit_rows(study))
    print("## Messages, measured and modelled")
    print_table(["size", "ranks", "measured", "modelled", "error"], message_rows(study))
    print_picture(message_picture(study), "scaling_messages")
    print("Within a host, fitted:")
    print_table(["algorithm", "α, per message", "1/β, per second"], link_rows(study))
    gamma = study.network.add_s_per_byte
    print(f"γ, measured by itself: adding {size(1 / gamma)} takes a second.\n")
    work = study.model.work
    print(
        f"Work of a step: {duration(work.fixed)} and {duration(work.slope)} for each sample of the "
        "rank.\n\nErrors of the model where there are measurements:\n"
    )
    for line in error_lines(study):
        print(f"- {line}")


def step_rows(study: Study) -> Iterator[list[str]]:
    for is_weak in (False, True):
        for ranks in study.counts:
            step = study.step(ranks, is_weak)
            parts = (step.compute_s, step.wait_s, step.transfer_s)
            yield [
                f"{'weak' if is_weak else 'strong'}, {named(ranks)}",
                count(step.minibatch_size),
                count(step.samples_per_s),
                f"{study.efficiency(ranks, is_weak):.2f}",
                *(f"{part / step.seconds:.1%}" for part in parts),
            ]


def bit_rows(study: Study) -> Iterator[list[str]]:
    for ranks in study.counts:
        for bits in (PLAIN_BITS, *reversed(LEGAL_BITS)) if ranks > 1 else ():
            step = study.step(ranks, bits=bits)
            yield [
                str(bits),
                str(ranks),
                count(step.bytes_sent),
                count(step.samples_per_s),
                f"{step.communication:.1%}",
            ]


def message_rows(study: Study) -> Iterator[list[str]]:
    for timing in study.found.reductions:
        modelled_s = all_reduce_s(timing.nbytes, timing.ranks, study.network)
        yield [
            size(timing.nbytes),
            str(timing.ranks),
            duration(timing.seconds),
            duration(modelled_s),
            f"{modelled_s / timing.seconds - 1:+.0%}",
        ]


def link_rows(study: Study) -> Iterator[list[str]]:
    for name, link in study.network.links.items():
        yield [name, duration(link.latency_s), size(link.bytes_per_s)]


def error_lines(study: Study) -> Iterator[str]:
    for ranks, found in study.reduction_errors().items():
        fitted = "" if ranks in study.fitted_counts else " (not fitted to these)"
        yield f"all-reduce, {ranks} ranks{fitted}: {found}"
    for ranks, found in study.held_out_errors().items():
        yield f"all-reduce, {ranks} ranks, by a model that was fitted to fewer: {found}"
    for ranks, found in study.exchange_errors().items():
        yield f"all-to-all, {ranks} ranks: {found}"
    for (ranks, bits), found in study.step_errors().items():
        yield f"step, {named(ranks)}, {'float32' if bits == PLAIN_BITS else f'{bits}-bit'}: {found}"
    if len(study.fitted_counts) == 1:
        yield (
            f"only {named(study.fitted_counts[0])} could be fitted, so how messages grow with the "
            "number of ranks is the algorithms' rule, and no measurement"
        )


def print_predictions(
    study: Study, between: Link, ranks_per_host: int, counts: Sequence[int]
) -> None:
    def places(is_by_node: bool = False) -> list[Layout]:
        return list(layouts(study.network, between, ranks_per_host, counts, is_by_node))

    speed, latency = f"{size(between.bytes_per_s)}/s", duration(between.latency_s)
    print(f"\n## {count(min(counts))} to {count(max(counts))} ranks, modelled\n")
    print(
        f"Nothing below was measured. Hosts of {ranks_per_host} ranks, joined by {speed} with "
        f"{latency} for a message; within a host as fitted above, also for more ranks than were "
        "measured. Few bits: with quantising as measured on one rank for each number of ranks."
    )
    for is_weak in (False, True):
        amount = f"{count(study.minibatch_size)} samples {'a rank' if is_weak else 'in all'}"
        print(f"\n{'Weak' if is_weak else 'Strong'} scaling, {amount}: samples/s.")
        rows = []
        for name, bits, is_hierarchical, is_by_node in WAYS:
            found = study.predict(places(is_by_node), is_weak, bits, is_hierarchical)
            rows.append([name, *(count(each.samples_per_s) for each in found)])
        print_table(["", *map(count, counts)], rows)
    print("Communication in a step, quantising included:")
    rows = []
    for bits in (PLAIN_BITS, *reversed(LEGAL_BITS)):
        for is_hierarchical in (False, True):
            name = "float32" if bits == PLAIN_BITS else f"{bits} bit{'s' * (bits > 1)}"
            times_s = (
                study.model.communication_s(place, bits, is_hierarchical) for place in places()
            )
            how = "hierarchical" if is_hierarchical else "flat"
            rows.append([f"{name}, {how}", *map(duration, times_s)])
    print_table(["", *map(count, counts)], rows)
    print_picture(prediction_picture(study, places), "scaling")


def prediction_picture(study: Study, places: Callable[[bool], list[Layout]]) -> Picture:
    panels = []
    for is_weak in (False, True):
        shown = []
        for name, bits, is_hierarchical, is_by_node in WAYS:
            found = study.predict(places(is_by_node), is_weak, bits, is_hierarchical)
            modelled = {each.layout.ranks: each.samples_per_s for each in found}
            measured = {}
            if name == WAYS[0][0]:
                measured = {n: study.step(n, is_weak).samples_per_s for n in study.counts}
            shown.append(Series(name, measured, modelled))
        alone = study.step(1).samples_per_s
        title = (
            f"weak: {count(study.minibatch_size)} samples a rank"
            if is_weak
            else f"strong: {count(study.minibatch_size)} samples in all"
        )
        ideal = {n: n * alone for n in (1, max(modelled))}
        panels.append(Panel(title, shown, "ranks", "samples/s", ideal, count, rate))
    return measured_and_modelled(panels)


def message_picture(study: Study) -> Picture:
    shown = []
    for ranks in study.counts[1:]:
        measured = {t.nbytes: t.seconds for t in study.found.reductions if t.ranks == ranks}
        modelled = {n: all_reduce_s(n, ranks, study.network) for n in measured}
        shown.append(Series(f"all-reduce, {ranks} ranks", measured, modelled))
        link = study.network.links[PAIRWISE]
        measured = {t.nbytes: t.seconds for t in study.found.exchanges if t.ranks == ranks}
        modelled = {n: collective_s(PAIRWISE, n, ranks, link) for n in measured}
        shown.append(Series(f"all-to-all, {ranks} ranks", measured, modelled))
    return measured_and_modelled([Panel("messages", shown, "size of a rank's tensor", "time")])


def part_picture(study: Study) -> Picture:
    rows = {}
    for is_weak in (False, True):
        for ranks in study.counts:
            step = study.step(ranks, is_weak)
            rows[f"{'weak' if is_weak else 'strong'}, {named(ranks)}"] = {
                "working": 1e3 * step.compute_s,
                "waiting for a rank": 1e3 * step.wait_s,
                "moving data": 1e3 * step.transfer_s,
            }
    return share_bars(rows, "milliseconds of a step", lambda value: f"{value:.1f}")


def named(ranks: int) -> str:
    return f"{ranks} rank{'s' * (ranks != 1)}"


if __name__ == "__main__":
    main()
