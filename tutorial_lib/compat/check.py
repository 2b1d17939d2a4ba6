"""Compare runs recorded from CNTK 2.7 with the same runs by this library.

python -m tutorial_lib.compat.check FILE...

Takes ``learners.json`` and the files of quantised sums (``quant_*``), block momentum (``bm_*``)
and the GAN (``gan_*``), prints each case's worst difference, and exits with 1 where one exceeds
what is allowed. A file or case that can't be read doesn't keep it from the others; it then exits
with 2.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tutorial_lib.compat.recorded import Comparison, comparisons
from tutorial_lib.data.errors import DataError


def main(arguments: list[str] | None = None) -> int:
    """Compare files.

    Args:
        arguments: Their names; None takes the command line's.

    Returns:
        Exit status: 0 when all cases are followed, 1 when one isn't, 2 for a file that is none.

    **Distributed:** not collective; starts ranks of its own where a file needs them.
    """
    parser = argparse.ArgumentParser(prog="check", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a recorded run")
    failed = unread = 0
    seen: set[Path] = set()
    for path in parser.parse_args(arguments).files:
        case = path.with_name(re.sub(r"_r\d+\.json$", "", path.name))
        if case in seen:  # all ranks of a run are compared at once
            continue
        seen.add(case)
        for result in _results(path):
            if result is None:
                unread += 1
                continue
            failed += not result.is_followed
            print(
                f"{'ok  ' if result.is_followed else 'FAIL'} {path.name:28} {result.case:28} "
                f"worst difference {result.worst:.1e}, {result.share:.2f} of what is allowed",
                flush=True,
            )
    if failed:
        print(f"{failed} cases are not followed", file=sys.stderr)
    return 2 if unread else int(failed > 0)


def _results(path: Path) -> Iterator[Comparison | None]:
    """Compare a file's cases; None stands for one that is none, after a line that says why."""
    try:
        for make in comparisons(path):
            try:
                yield make()
            except DataError as error:
                print(f"error: {error}", file=sys.stderr)
                yield None
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        yield None


if __name__ == "__main__":
    sys.exit(main())
