"""``%%ranks`` in a real notebook kernel, as JupyterLab and papermill drive it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import psutil
import pytest

from tutorial_lib.cluster import where

pytestmark = pytest.mark.engines

SLACK_S = 3.0  # beyond what is promised, for a machine that does other work

Output = dict[str, Any]


def text(outputs: list[Output]) -> str:
    return "".join(output["text"] for output in outputs if output["kind"] == "stream")


@pytest.fixture(scope="module")
def notebook(private_runtime: None, new_notebook: Callable[[], Any]) -> Iterator[Any]:
    started = new_notebook()
    started.run("from tutorial_lib.cluster import Cluster")
    started.run("ranks = Cluster(n=2, process_group=False).start()")
    started.run("%%ranks\nfrom mpi4py import MPI\nrank = MPI.COMM_WORLD.rank")
    yield started
    started.close()


def test_cluster_cell_says_what_runs_and_may_run_again(notebook: Any) -> None:
    (again,) = notebook.run("ranks = Cluster(n=2, process_group=False).start()")
    assert again["data"] == {"text/plain": "using the 2 ranks that run already"}
    (other,) = notebook.run("with Cluster(n=1, process_group=False) as one: pass")
    assert other["data"]["text/plain"].startswith("1 rank ready in ")
    assert other["metadata"] == {}


def test_cell_gives_text_in_rank_order_and_values_by_rank(notebook: Any) -> None:
    outputs = notebook.run("%%ranks\nprint('I am', rank)\nrank * 2")
    assert text(outputs) == "I am 0\n[rank 1]\nI am 1\n"
    assert outputs[-1]["kind"] == "execute_result"
    assert outputs[-1]["data"] == {"text/plain": "{0: 0, 1: 2}"}
    assert outputs[-1]["metadata"] == {}
    assert notebook.run("%%ranks 1\nrank")[-1]["data"] == {"text/plain": "{1: 1}"}
    assert notebook.run("%%ranks\nx = 1") == []


def test_variables_are_pushed_and_pulled(notebook: Any) -> None:
    notebook.run("a, b = 5, {'x': [1, 2]}")
    outputs = notebook.run("%%ranks --push a,b\na + rank, b")
    assert outputs[-1]["data"]["text/plain"] == "{0: (5, {'x': [1, 2]}), 1: (6, {'x': [1, 2]})}"
    assert notebook.run("ranks.pull('rank')")[-1]["data"]["text/plain"] == "{0: 0, 1: 1}"
    notebook.run("def shift(x):\n    return x + a")
    assert notebook.run("%%ranks --push shift\nshift(rank)")[-1]["data"]["text/plain"] == (
        "{0: 5, 1: 6}"
    )


def test_rich_output_updates_and_clearing_come_through(notebook: Any) -> None:
    shown = notebook.run(
        "%%ranks\nfrom IPython.display import HTML, display, clear_output\n"
        "print('before')\nclear_output()\nhandle = display(HTML(f'<b>{rank}</b>'), "
        "display_id=True)\n"
        "handle.update(HTML(f'<i>{rank}</i>'))"
    )
    assert [output["kind"] for output in shown] == ["display_data", "stream", "display_data"]
    assert [output["data"]["text/html"] for output in shown[::2]] == ["<i>0</i>", "<i>1</i>"]
    assert all(output["metadata"] == {} for output in shown[::2])
    assert shown[1]["text"] == "[rank 1]\n"


def test_figures_are_shown(notebook: Any) -> None:
    shown = notebook.run(
        "%%ranks 0\n%matplotlib inline\nimport matplotlib.pyplot as plt\n_ = plt.plot([1, 2])"
    )
    assert [sorted(output["data"]) for output in shown] == [["image/png", "text/plain"]]


def test_error_names_rank_and_line_of_the_cell(notebook: Any) -> None:
    (error,) = notebook.run("%%ranks\nx = 1\nif rank == 1:\n    raise ValueError('bad')")
    assert error["ename"] == "CellError"
    assert error["evalue"] == "rank 1: ValueError: bad (line 4)"
    shown = "\n".join(error["traceback"])
    assert shown.startswith("rank 1: ValueError: bad (line 4)")
    assert "# %%ranks" in shown
    assert "rank_call.py" not in shown
    for wrong in ("x = = 1", "return 1"):
        (error,) = notebook.run(f"%%ranks\nx = 1\n{wrong}")
        assert ": SyntaxError: " in error["evalue"]
        assert error["evalue"].endswith("(line 3)")


def test_wrong_magic_lines_are_explained(notebook: Any) -> None:
    for line, message in [("nobody", "%%ranks --push a,b"), ("--push zzz", "no variable 'zzz'")]:
        shown = text(notebook.run(f"%%ranks {line}\n1"))
        assert "UsageError" in shown
        assert message in shown
    (error,) = notebook.run("%%ranks 0,5\n1")
    assert "no rank 5" in error["evalue"]


def test_px_still_works(notebook: Any) -> None:
    # Of what is printed before it begins to stream, ipyparallel 9.2 shows one rank's alone.
    shown = notebook.run("%%px\nimport time\ntime.sleep(1)\nprint(rank)")
    everything = "".join(o.get("text", "") + str(o.get("data", "")) for o in shown)
    assert "[stdout:0] 0" in everything
    assert "[stdout:1] 1" in everything


@pytest.mark.parametrize("work", ["import time; time.sleep(60)", "while True: pass"])
def test_interrupt_ends_the_cell_with_an_error_and_the_next_one_works(
    notebook: Any, work: str
) -> None:
    outputs, took_s = notebook.run_and_interrupt(f"%%ranks\nkept = rank\n{work}")
    assert took_s < 3
    assert outputs[-1]["ename"] == "KeyboardInterrupt"
    assert outputs[-1]["traceback"] == [
        "KeyboardInterrupt",
        "ranks 0, 1 were interrupted (line 3).",
    ]
    assert notebook.run("%%ranks\nkept")[-1]["data"]["text/plain"] == "{0: 0, 1: 1}"


RUN_ALL = [
    "%%ranks\nkept = rank\nif rank == 0:\n    dist.all_reduce(torch.ones(3))\n"
    "else:\n    time.sleep(60)",
    "reached = True",
    "%%ranks\nreached = True",
]


def test_interrupt_of_an_all_reduce_stops_run_all_and_the_next_cell_works(notebook: Any) -> None:
    notebook.run(
        "%%ranks\nimport time, torch, torch.distributed as dist\n"
        "from tutorial_lib.distributed import session\n_ = session.start()"
    )
    cells = [notebook.client.execute(source) for source in RUN_ALL]
    deadline = time.monotonic() + 60
    while not any("all_reduce" in str(places[0]) for _, places in where()):
        assert time.monotonic() < deadline, "rank 0 does not wait"
    notebook.manager.interrupt_kernel()  # what a front end's button does: to its process group
    began = time.monotonic()
    replies: dict[str, dict[str, Any]] = {}
    while len(replies) < len(cells):
        reply = notebook.client.get_shell_msg(timeout=60)
        replies[reply["parent_header"]["msg_id"]] = reply["content"]
    assert time.monotonic() - began < 3 + SLACK_S
    stopped, *others = (replies[cell] for cell in cells)
    assert (stopped["status"], stopped["ename"]) == ("error", "KeyboardInterrupt")
    assert [other["status"] for other in others] == ["aborted", "aborted"]
    assert notebook.run("'reached' in globals()")[-1]["data"]["text/plain"] == "False"
    shown = notebook.run(
        "%%ranks\ndist.all_reduce(total := torch.tensor(rank + 1))\n"
        "total.item(), kept, 'reached' in globals()"
    )
    assert shown[-1]["data"]["text/plain"] == "{0: (3, 0, False), 1: (3, 1, False)}"


PRINTING = """%%ranks
import time
until = time.monotonic() + {seconds}
i = 0
while time.monotonic() < until:
    print(f"{{rank}} {{i:6}}", "x" * 90)
    i += 1
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    "durations_s",
    [(3, 9), pytest.param((10, 20, 40), marks=[pytest.mark.soak, pytest.mark.timeout(300)])],
)
def test_long_cell_has_a_line_for_each_other_rank_and_leaves_each_byte_once(
    notebook: Any, durations_s: tuple[int, ...]
) -> None:
    seen = []
    for seconds in durations_s:
        outputs = notebook.run(PRINTING.format(seconds=seconds))
        (folded,) = (o for o in outputs if o["kind"] == "display_data")
        assert outputs[-1] is folded  # and no line of a rank under way
        streams = text(outputs).splitlines()
        assert [line.split()[:2] for line in streams] == [
            ["0", str(i)] for i in range(len(streams))
        ]
        assert "s ago" not in str(outputs)
        plain = folded["data"]["text/plain"].splitlines()
        assert plain[0] == "[rank 1]"
        assert [line.split()[:2] for line in plain[1:]] == [
            ["1", str(i)] for i in range(len(plain) - 1)
        ]
        assert "<details><summary>rank 1: <code>1 " in folded["data"]["text/html"]
        seen.append((len(text(outputs)) + len(folded["data"]["text/plain"]), notebook.sent_bytes))
    for (useful, sent), (more_useful, more_sent) in pairwise(seen):
        assert more_sent / more_useful < 1.2 * sent / useful  # linear
        assert more_sent < 4 * more_useful  # rank 0's at most thrice, rank 1's as text and as HTML


def test_lines_of_other_ranks_show_while_a_cell_runs(notebook: Any) -> None:
    lines: list[str] = []
    notebook.client.execute(
        "%%ranks\nimport time\nprint(f'step 1 of {rank}')\ntime.sleep(4)\nprint('done')"
    )
    while not lines:
        message = notebook.client.get_iopub_msg(timeout=60)
        if message["msg_type"] == "display_data":
            lines = message["content"]["data"]["text/plain"].splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("rank 1 ")
    assert lines[0].endswith("s ago  step 1 of 1")
    final = notebook.run("1")  # waits for the cell before
    assert final[-1]["data"] == {"text/plain": "1"}


REPORTING = """%%ranks
import time
from IPython.display import display
print("before")
for step in range(0, 41, 4):
    report = {
        "rank": rank, "ranks": 2, "step": step, "steps": 40, "seconds": 0.1 * step,
        "samples": step, "host": "here", "device": "cpu", "threads": 1, "memory_bytes": 2**20,
        "communication": 0.5, "is_over": step == 40, "losses": {"D": [[step + 1], [1.0]]},
    }
    display({"application/vnd.gan-tutorial.report+json": report}, raw=True)
    time.sleep(0.25)
print("after")
"""


def test_reports_of_all_ranks_become_one_board_in_its_place(notebook: Any) -> None:
    before, board, after, others = notebook.run(REPORTING)
    assert (before["text"], after["text"]) == ("before\n", "after\n")
    bar, _, *rows = board["data"]["text/plain"].splitlines()
    assert bar == "━" * 30 + " step 40 of 40, 10 samples/s, 4 s"
    assert [row.split()[:5] for row in rows] == [
        [str(rank), "here", "cpu", "1", "40"] for rank in (0, 1)
    ]
    assert "Losses up to step 40: D 1.000." in board["data"]["text/html"]
    assert board["metadata"] == {}
    assert others["data"]["text/plain"] == "[rank 1]\nbefore\nafter"  # and none of its reports


def test_unfolded_on_request(notebook: Any) -> None:
    for magic, element in (("%%ranks", "<details>"), ("%%ranks --all", "<details open>")):
        (shown,) = notebook.run(f"{magic}\nif rank == 1: print('<a>\\n&b')")
        assert shown["data"]["text/plain"] == "[rank 1]\n<a>\n&b"
        assert shown["data"]["text/html"].startswith(f"{element}<summary>rank 1: <code>&amp;b<")
        assert ">&lt;a&gt;\n&amp;b<" in shown["data"]["text/html"]


def test_flood_neither_blocks_nor_floods_and_the_logs_have_all_of_it(notebook: Any) -> None:
    outputs = notebook.run("%%ranks\nfor i in range(100_000):\n    print('flood', i, 'y' * 40)")
    assert notebook.sent_bytes < 3_000_000
    assert "lines left out: the file ranks.logs[0] has them" in text(outputs)
    assert "lines left out: the file ranks.logs[1]" in outputs[-1]["data"]["text/plain"]
    for shown in (text(outputs), outputs[-1]["data"]["text/plain"]):
        assert shown.rstrip().endswith("flood 99999 " + "y" * 40)
    outputs = notebook.run(
        "for log in ranks.logs.values():\n"
        "    found = [line for line in open(log) if line.startswith('flood')]\n"
        "    print(len(found), found[-1].split()[1])"
    )
    assert text(outputs) == "100000 99999\n" * 2


def test_killed_kernel_takes_its_engines_with_it(
    notebook: Any,
    cluster_processes: Callable[[], list[psutil.Process]],
    wait_until: Callable[..., bool],
) -> None:
    assert cluster_processes()
    notebook.client.execute("%%ranks\nimport time; time.sleep(60)")
    time.sleep(0.5)
    os.kill(notebook.pid, signal.SIGKILL)
    assert wait_until(lambda: not cluster_processes(), 10), cluster_processes()
