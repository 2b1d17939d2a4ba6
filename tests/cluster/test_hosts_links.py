"""Links tell who lives, and let nobody in who does not belong to the cluster."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tutorial_lib.cluster import runtime
from tutorial_lib.cluster.remote.guard import _Guard
from tutorial_lib.cluster.remote.switchboard import Switchboard
from tutorial_lib.cluster.remote.wire import Wire, WireError
from tutorial_lib.cluster.supervisor import Supervisor

WaitUntil = Callable[..., bool]


@pytest.fixture
def switchboard() -> Iterator[Switchboard]:
    folder = runtime.create("test")
    folder.engine_file.write_text("{}")
    board = Switchboard(folder, ["127.0.0.1"], silence_s=1.0)
    yield board
    board.close()
    folder.remove()


@contextlib.contextmanager
def linked(board: Switchboard, token: str | None = None) -> Iterator[Wire]:
    start = board.start_data()
    wire = Wire(socket.create_connection(start.ways[0]), token or start.token, is_supervisor=False)
    yield wire
    wire.close()


def test_silent_rank_is_lost_and_named(switchboard: Switchboard, wait_until: WaitUntil) -> None:
    with linked(switchboard) as one, linked(switchboard) as other:
        stop = threading.Event()
        for rank, wire in enumerate((one, other)):
            wire.send("hello", rank=rank, host=f"node{rank}")
            wire.send("report", note={"rank": rank, "pid": 7, "stage": "importing", "mpi": ""})
            wire.receive()  # the other end's greeting, so that ours are sent
        folder = switchboard._folder
        assert wait_until(lambda: len(folder.reports()) == 2, 10)
        assert folder.reports()[1]["host"] == "node1"

        def beat() -> None:
            while not stop.wait(0.1):
                one.send("beat")

        thread = threading.Thread(target=beat)
        thread.start()
        try:
            said: list[str] = []
            assert wait_until(lambda: said.append(switchboard.silent(3.0)) or said[-1], 10)
            assert said[-1].startswith("rank 1 on node1 can't be reached since ")
            assert switchboard.rank_that_left() is None
            other.close()
            assert wait_until(lambda: switchboard.rank_that_left() == 1, 10)
            assert switchboard.silent(3.0) == ""
            assert folder.reports()[1]["has_ended"]
        finally:
            stop.set()
            thread.join()


def test_stranger_is_not_let_in(switchboard: Switchboard, wait_until: WaitUntil) -> None:
    with linked(switchboard, token="guessed") as stranger:
        stranger.send("hello", rank=0, host="evil")
        with pytest.raises((WireError, EOFError, ConnectionError)):  # it does not know us either
            hear_until_the_end(stranger)
    assert switchboard._known() == []


def hear_until_the_end(wire: Wire) -> None:
    for _ in range(100):
        wire.receive()


@contextlib.contextmanager
def two_ends() -> Iterator[list[Wire]]:
    """The ends of a link, which have greeted each other; the second is the supervisor's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ends = socket.create_connection(server.getsockname()), server.accept()[0]
    wires = [Wire(end, "token", is_supervisor=bool(i)) for i, end in enumerate(ends)]
    for wire in reversed(wires):
        wire.receive()
    yield wires
    for wire in wires:
        wire.close()


def test_message_that_is_played_back_is_refused() -> None:
    with two_ends() as (ours, theirs):
        ours.send("beat")
        line = theirs.connection.recv(4096, socket.MSG_PEEK)
        assert [message["what"] for message in theirs.receive()] == ["beat"]
        ours.connection.sendall(line)
        with pytest.raises(WireError, match="does not belong to this cluster"):
            theirs.receive()


def test_messages_of_two_threads_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor tells ranks to end while its switchboard's thread sends signs of life."""
    code = Wire._code

    def slow(self: Wire, *arguments: Any, **named: Any) -> bytes:
        made = code(self, *arguments, **named)
        time.sleep(0.002)  # between taking a number and sending the line
        return made

    with two_ends() as (ours, theirs):
        monkeypatch.setattr(Wire, "_code", slow)
        threads = [threading.Thread(target=send_ten, args=(ours, what)) for what in ("beat", "end")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        monkeypatch.undo()
        received: list[str] = []
        while len(received) < 20:
            received += [message["what"] for message in theirs.receive()]
        assert received.count("end") == 10


def send_ten(wire: Wire, what: str) -> None:
    for _ in range(10):
        wire.send(what)


@contextlib.contextmanager
def switchboard_pauses(board: Switchboard) -> Iterator[None]:
    """Keep a switchboard from reading for a while."""
    select, may_go_on, pauses = board._selector.select, threading.Event(), threading.Event()

    def wait(timeout_s: float) -> Any:
        pauses.set()
        assert may_go_on.wait(10)
        return select(timeout_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(board._selector, "select", wait)
        assert pauses.wait(10)
        yield
        may_go_on.set()


REPORT = {"rank": 0, "pid": 7, "stage": "importing", "mpi": ""}


@pytest.mark.parametrize("is_leaving", [False, True])
def test_disk_that_is_full_is_the_reason_not_the_network(
    switchboard: Switchboard,
    wait_until: WaitUntil,
    monkeypatch: pytest.MonkeyPatch,
    is_leaving: bool,
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with linked(switchboard) as wire:
        wire.send("hello", rank=0, host="node0")
        if is_leaving:
            wire.send("report", note=REPORT)
        wire.receive()
        folder = switchboard._folder
        assert wait_until(lambda: len(switchboard._known()) == 1, 10)
        assert not is_leaving or wait_until(folder.reports, 10)
        monkeypatch.setattr(type(folder), "write_report", fail)
        if is_leaving:
            wire.close()
        else:
            with switchboard_pauses(switchboard):  # so that it reads both at once
                wire.send("report", note=REPORT)
                wire.send("left")
        assert wait_until(lambda: switchboard.rank_that_left() == 0, 10)
        assert wait_until(lambda: switchboard.failure, 10)
        assert switchboard.failure.startswith(
            "what rank 0 on node0 says can't be kept: [Errno 28] No space left on device"
        )
        assert switchboard._thread.is_alive()


def test_thread_that_fails_is_a_reason(
    switchboard: Switchboard, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switchboard, "_drop_strangers", lambda: 1 / 0)
    assert wait_until(lambda: switchboard.failure, 10)
    assert "the links to the ranks have failed (ZeroDivisionError" in switchboard.failure
    supervisor = Supervisor.__new__(Supervisor)
    supervisor._links, supervisor.ended = switchboard, {1: 0}
    assert supervisor._lost(1) == switchboard.failure


def test_guard_that_takes_leave_is_let_go(
    switchboard: Switchboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switchboard, "_tell_all", lambda what: None)  # no other sign of life
    folder = switchboard._folder
    folder.note_end(0, 7, 0, time.time())
    guard = _Guard(switchboard.start_data(), 0, folder, engine=7)
    with linked(switchboard) as wire:
        wire.send("hello", rank=0, host="node0")
        wire.receive()
        assert guard._take_leave(wire), "it takes a slow stop for a network that is cut"
        assert switchboard.rank_that_left() == 0
