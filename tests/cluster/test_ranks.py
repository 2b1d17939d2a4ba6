"""Work on the ranks: values, output, errors, interrupts, always in rank order."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tutorial_lib.cluster import BusyRankError, CellError, Cluster, Ranks

pytestmark = pytest.mark.engines

RANK = "from mpi4py import MPI\nrank = MPI.COMM_WORLD.rank\n"


@pytest.fixture
def interrupt_after() -> Iterator[object]:
    """Interrupts this process, as a front end interrupts a kernel."""
    timers = []

    def schedule(seconds: float) -> None:
        timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
        timers.append(timer)
        timer.start()

    yield schedule
    for timer in timers:
        timer.cancel()
        timer.join()


def double(x: int) -> int:
    return 2 * x


def test_last_expression_comes_back_in_rank_order(ranks: Ranks) -> None:
    assert len(ranks) == ranks.world_size == 2
    assert list(ranks.run(f"{RANK}rank * 10").items()) == [(0, 0), (1, 10)]
    assert ranks.run("rank", ranks=[1]) == {1: 1}
    assert list(ranks.run("rank", ranks=[1, 0])) == [0, 1]


def test_no_answer_of_many_quick_ones_is_lost(ranks: Ranks) -> None:
    ranks.run("i = 0")
    for i in range(300):
        assert ranks.run("i += 1\ni") == {0: i + 1, 1: i + 1}


@pytest.mark.parametrize(
    "source", ["x = 5", "5;", "5 # five;\n;".replace("\n;", " "), "", "# nothing", "None"]
)
def test_cells_without_a_value_give_none(ranks: Ranks, source: str) -> None:
    expected = 5 if source.startswith("5 #") else None
    assert ranks.run(source) == {0: expected, 1: expected}


def test_values_go_in_and_out(ranks: Ranks) -> None:
    values = {"a": np.arange(6).reshape(2, 3), "b": {"x": [1, (2, None)]}, "c": "ü"}
    ranks.push(values)
    assert all(np.array_equal(a, values["a"]) for a in ranks.pull("a").values())
    assert ranks.pull("b") == {0: values["b"], 1: values["b"]}
    ranks.push({"c": 1}, ranks=[1])
    assert ranks.pull("c") == {0: "ü", 1: 1}
    assert ranks.pull("a.sum() + 1") == {0: 16, 1: 16}


def test_values_that_cannot_be_sent_are_refused_and_nothing_is_stuck(ranks: Ranks) -> None:
    with pytest.raises(TypeError, match="pickle"):
        ranks.push({"x": (i for i in range(3))})
    assert ranks.run("1") == {0: 1, 1: 1}


def test_functions_run_on_the_ranks(ranks: Ranks) -> None:
    assert ranks.run(divmod, 17, 5) == {0: (3, 2), 1: (3, 2)}
    assert ranks.run(lambda x: x + 1, 1) == {0: 2, 1: 2}


def test_values_that_cannot_leave_their_rank_are_shown(ranks: Ranks) -> None:
    values = ranks.run("class Here:\n    def __repr__(self): return 'I stay'\nHere()")
    assert repr(values) == "{0: I stay, 1: I stay}"
    assert "generator object" in repr(ranks.run("(x for x in 'ab')")[0])
    assert "repr fails" in repr(
        ranks.run("class Bad:\n    def __repr__(self): raise ValueError\n(lambda: 0, Bad())")[0]
    )


def test_tensors_arrive_without_their_gradients(ranks: Ranks) -> None:
    torch = pytest.importorskip("torch")
    values = ranks.run("import torch\ntorch.ones(2, requires_grad=True) * 3")
    assert all(torch.equal(value, torch.full((2,), 3.0)) for value in values.values())
    assert not values[0].requires_grad


def test_source_of_what_a_cell_defines_is_found(ranks: Ranks) -> None:
    source = "def f(x):\n    return x + 1  # the comment too\n"
    ranks.run(source)
    assert ranks.run("import inspect; inspect.getsource(f)") == {0: source, 1: source}
    source = "class C:\n    def g(self):\n        return 7\n"
    ranks.run(source)
    assert ranks.run("inspect.getsource(C.g)")[0] == "    def g(self):\n        return 7\n"
    assert ranks.run("inspect.getsource(C)") == {0: source, 1: source}


def test_ipython_works_in_cells(ranks: Ranks) -> None:
    assert ranks.run("import math\n%precision 3\nfiles = !echo hello\nfiles[0]")[1] == "hello"


def test_output_is_in_rank_order_and_each_byte_comes_once(
    ranks: Ranks, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks.run(f"{RANK}import time\nfor i in range(300):\n    print(rank, i)\n    time.sleep(0.001)")
    lines = [f"{rank} {i}" for rank in (0, 1) for i in range(300)]
    lines.insert(300, "[rank 1]")
    assert capsys.readouterr().out.splitlines() == lines


def test_output_of_rank_0_is_live(ranks: Ranks, capsys, tmp_path, wait_until) -> None:
    seen, file = [], tmp_path / "seen"

    def see_and_let_go() -> None:
        wait_until(lambda: seen.append(capsys.readouterr().out) or "\n" in "".join(seen), 20)
        file.touch()

    thread = threading.Thread(target=see_and_let_go)
    thread.start()
    wait = f"import os, time\nwhile not os.path.exists({str(file)!r}): time.sleep(0.05)"
    ranks.run(f"print('early')\n{wait}\nprint('late')")
    thread.join()
    assert "".join(seen) == "early\n"
    assert capsys.readouterr().out == "late\n[rank 1]\nearly\nlate\n"


def test_standard_error_and_unfinished_lines_are_kept_apart(
    ranks: Ranks, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks.run("import sys\nprint('a', end='')\nprint('b', file=sys.stderr)", ranks=[1])
    out, err = capsys.readouterr()
    assert out == "[rank 1]\na"
    assert err == "b\n"
    ranks.run("print('10 %\\r20 %\\r30 %', end='')")
    assert capsys.readouterr().out == "10 %\r20 %\r30 %\n[rank 1]\n30 %\n"


def test_error_on_one_rank_names_it_and_its_line(ranks: Ranks) -> None:
    with pytest.raises(CellError, match=r"^rank 1: ValueError: bad \(line 4\)") as caught:
        ranks.run(f"{RANK}if rank == 1:\n    raise ValueError('bad')")
    shown = "\n".join(caught.value._render_traceback_())
    assert shown.startswith("rank 1: ValueError: bad (line 4)")
    assert "raise" in shown
    assert "tutorial_lib" not in shown
    assert caught.value.rank == 1


def test_error_on_all_ranks_is_raised_once(ranks: Ranks) -> None:
    with pytest.raises(
        CellError, match=r"ZeroDivisionError: division by zero \(line 2\)"
    ) as caught:
        ranks.run("\n1/0")
    assert len(caught.value.others) == 1


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = (", r"SyntaxError: .* \(line 1\)"),
        ("\n\nx = 1\n  y = 2", r"IndentationError: .* \(line 4\)"),
        ("\n\nreturn 1", r"SyntaxError: 'return' outside function .* \(line 3\)"),
        ("raise SystemExit(3)", r"SystemExit: 3 \(line 1\)"),
        ("exit()", r"SystemExit: exit\(\) is not for ranks.* \(line 1\)"),
        ("import no_such_module", r"ModuleNotFoundError: .*no_such_module.* \(line 1\)"),
        ("%no_such_magic", r"UsageError"),
    ],
)
def test_every_kind_of_error_is_an_error(ranks: Ranks, source: str, message: str) -> None:
    with pytest.raises(CellError, match=message):
        ranks.run(source)
    assert ranks.run("1") == {0: 1, 1: 1}


def test_failing_functions_and_expressions_name_the_rank(ranks: Ranks) -> None:
    with pytest.raises(CellError, match=r"rank \d: ZeroDivisionError"):
        ranks.run(divmod, 1, 0)
    with pytest.raises(CellError, match=r"rank \d: NameError.*no_such_name"):
        ranks.pull("no_such_name")


def test_error_on_one_rank_releases_the_others(ranks: Ranks) -> None:
    began = time.monotonic()
    with pytest.raises(CellError, match=r"rank 0: RuntimeError: first \(line 3\)") as caught:
        ranks.run(f"{RANK}if rank == 0: raise RuntimeError('first')\nimport time\ntime.sleep(60)")
    assert time.monotonic() - began < 5
    assert caught.value.others == ["rank 1 was interrupted (line 5)."]
    assert ranks.run("rank") == {0: 0, 1: 1}


def test_slow_ranks_may_finish_after_another_has_failed(ranks: Ranks) -> None:
    with pytest.raises(CellError):
        ranks.run(f"{RANK}import time\nif rank == 0: 1/0\ntime.sleep(0.3)\nfinished = True")
    assert ranks.pull("globals().get('finished')") == {0: None, 1: True}


@pytest.mark.parametrize("work", ["import time; time.sleep(60)", "while True: pass"])
def test_interrupt_reaches_the_ranks_and_the_caller(
    ranks: Ranks, interrupt_after: object, work: str
) -> None:
    ranks.push({"kept": 1})
    interrupt_after(1.0)  # type: ignore[operator]
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ranks.run(work)
    assert time.monotonic() - began < 4
    assert ranks.run("kept") == {0: 1, 1: 1}


def test_interrupt_when_idle_does_no_harm(ranks: Ranks) -> None:
    ranks.client.send_signal(signal.SIGINT, block=True)
    assert ranks.run("1 + 1") == {0: 2, 1: 2}


def test_wrong_rank_lists_are_refused(ranks: Ranks) -> None:
    with pytest.raises(ValueError, match="no rank 2: there are ranks 0 to 1"):
        ranks.run("1", ranks=[0, 2])
    with pytest.raises(ValueError, match="no rank named"):
        ranks.run("1", ranks=[])


def test_status_shows_who_the_ranks_are(ranks: Ranks) -> None:
    table = ranks.status()
    assert [row.info.rank for row in table] == [0, 1]
    assert [row.threads for row in table] == [1, 1]
    assert [row.state for row in table] == ["ready", "ready"]
    assert len({row.info.pid for row in table}) == 2
    assert repr(table).splitlines()[0].split() == [
        "rank",
        "engine",
        "host",
        "process",
        "cores",
        "threads",
        "state",
        "MPI",
    ]


def test_view_of_ipyparallel_is_in_rank_order(ranks: Ranks) -> None:
    ranks.run(RANK)
    assert ranks.view.get("rank") == [0, 1]


def test_stuck_rank_is_named_and_refuses_work_until_it_comes_back() -> None:
    block = (
        f"{RANK}import signal, time\nif rank == 1:\n"
        "    signal.signal(signal.SIGINT, signal.SIG_IGN)\n    time.sleep(14)\n"
        "else:\n    raise ValueError('root')"
    )
    with Cluster(n=2, process_group=False) as ranks:
        with pytest.raises(CellError, match="rank 0: ValueError: root") as caught:
            ranks.run(block)
        assert caught.value.others == ["rank 1 could not be interrupted."]
        with pytest.raises(BusyRankError, match="rank 1 is stuck"):
            ranks.run("1")
        assert ranks.run("1", ranks=[0]) == {0: 1}
        assert [row.state for row in ranks.status()] == ["ready", "stuck"]
        deadline = time.monotonic() + 20
        while ranks.problem() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert ranks.run("1") == {0: 1, 1: 1}


def test_process_group_is_open_in_the_first_cell(interrupt_after: object) -> None:
    with Cluster(n=2) as ranks:
        # An interrupt while the ranks import torch must not leave them with half of it.
        interrupt_after(0.2)  # type: ignore[operator]
        with pytest.raises(KeyboardInterrupt):
            ranks.run("while True: pass")
        code = (
            "import torch, torch.distributed as dist\nx = torch.tensor([1.0 + dist.get_rank()])\n"
        )
        values = ranks.run(f"{code}dist.all_reduce(x)\n(x.item(), torch.get_num_threads())")
        assert values == {0: (3.0, 1), 1: (3.0, 1)}
        assert ranks.run("from tutorial_lib.distributed import session\nsession.start().rank") == {
            0: 0,
            1: 1,
        }
        failing = "if dist.get_rank() == 1: raise ValueError('root')\ndist.all_reduce(x)"
        for _ in range(2):  # the one rank has begun a collective that the other never will
            with pytest.raises(CellError, match="rank 1: ValueError: root") as caught:
                ranks.run(failing)
            (other,) = caught.value.others
            assert other.startswith("rank 0 waited in all_reduce #")
            assert other.endswith("(dist.all_reduce, 4 bytes) at line 2 of the cell.")
        interrupt_after(1.0)  # type: ignore[operator]
        with pytest.raises(KeyboardInterrupt):
            ranks.run("if dist.get_rank() == 0: dist.all_reduce(x)\nimport time; time.sleep(60)")
        assert ranks.run("y = torch.ones(1)\ndist.all_reduce(y)\ny.item()") == {0: 2.0, 1: 2.0}
