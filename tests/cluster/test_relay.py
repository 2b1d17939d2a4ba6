"""Ranks' output: in rank order, each byte once, and as a notebook's output area would hold it."""

from __future__ import annotations

import random

import pytest

from tutorial_lib.cluster.lane import Lane
from tutorial_lib.cluster.relay import Relay

Message = dict[str, object]


def stream(text: str, name: str = "stdout") -> Message:
    return {"msg_type": "stream", "content": {"name": name, "text": text}}


def shown(text: str, display_id: str = "", kind: str = "display_data") -> Message:
    transient = {"display_id": display_id} if display_id else {}
    return {"msg_type": kind, "content": {"data": {"text/plain": text}, "transient": transient}}


def relay_all(messages: list[tuple[int, Message]], ranks: list[int]) -> None:
    relay = Relay(ranks)
    for rank, message in messages:
        relay.take(rank, message)
    relay.finish()


def test_any_interleaving_gives_the_same_lanes(capsys: pytest.CaptureFixture[str]) -> None:
    random_numbers = random.Random(0)
    for _ in range(20):
        texts = {rank: [f"{rank}.{i}\n" for i in range(5)] for rank in (0, 1, 2)}
        order = [rank for rank in texts for _ in range(5)]
        random_numbers.shuffle(order)
        queues = {rank: iter(lines) for rank, lines in texts.items()}
        relay_all([(rank, stream(next(queues[rank]))) for rank in order], [0, 1, 2])
        lanes = ["".join(texts[0]), "[rank 1]\n", *texts[1], "[rank 2]\n", *texts[2]]
        assert capsys.readouterr().out == "".join(lanes)


def test_first_rank_is_live_and_named_unless_it_is_rank_0(
    capsys: pytest.CaptureFixture[str],
) -> None:
    relay = Relay([1, 3])
    relay.take(3, stream("later\n"))
    relay.take(1, stream("now\n"))
    assert capsys.readouterr().out == "[rank 1]\nnow\n"
    relay.take(1, stream("more\n"))
    assert capsys.readouterr().out == "more\n"
    relay.finish()
    assert capsys.readouterr().out == "[rank 3]\nlater\n"
    relay.finish()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("pieces", [["x"], ["x\n", "y", "z"], ["x\n"], ["10 %\r20 %"]])
def test_another_rank_begins_on_a_line_of_its_own(
    pieces: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    relay_all([(1, stream("later\n")), *((0, stream(text)) for text in pieces)], [0, 1])
    own = "".join(pieces)
    assert capsys.readouterr().out == f"{own.removesuffix(chr(10))}\n[rank 1]\nlater\n"


def test_last_line_is_whole_however_its_text_was_cut() -> None:
    texts = "step 1\nstep 12 of 1\n", "10 %\r20 % of all", "wide " * 400, "one\n\n \n"
    for text in texts:
        [whole] = [line for line in text.replace("\r", "\n").split("\n") if line.strip()][-1:]
        for size in (1, 2, 3, 7, len(text)):
            lane = Lane()
            for start in range(0, len(text), size):
                lane.keep(stream(text[start : start + size]))
            assert whole.endswith(lane.last_line)
            assert len(lane.last_line) >= min(len(whole), 1000)


def test_last_line_begins_anew_in_another_stream() -> None:
    lane = Lane()
    for message in (stream("step 1"), stream("warning", "stderr"), shown("a"), stream("b")):
        lane.keep(message)
    assert lane.last_line == "b"


def test_streams_stay_apart(capsys: pytest.CaptureFixture[str]) -> None:
    relay_all([(1, stream("a\n")), (1, stream("b\n", "stderr")), (1, stream("c"))], [0, 1])
    out, err = capsys.readouterr()
    assert out == "[rank 1]\na\n[rank 1]\nc\n"
    assert err == "[rank 1]\nb\n"


def test_overwritten_lines_of_waiting_ranks_vanish(capsys: pytest.CaptureFixture[str]) -> None:
    relay_all([(1, stream("1 %\r2 %")), (1, stream("\r3 %\nnext\r\n"))], [0, 1])
    assert capsys.readouterr().out == "[rank 1]\n3 %\nnext\r\n"


def test_clearing_and_updates_apply_to_waiting_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    clear = {"msg_type": "clear_output", "content": {"wait": False}}
    messages = [stream("old\n"), clear, shown("1", "x"), stream("text\n")]
    messages += [shown("2", "x", "update_display_data"), shown("3", "y", "update_display_data")]
    relay_all([(1, message) for message in messages], [0, 1])
    assert capsys.readouterr().out == "[rank 1]\n2\ntext\n"


def test_much_output_costs_time_in_proportion() -> None:
    relay = Relay([0, 1])
    for _ in range(100_000):
        relay.take(1, stream("x" * 10 + "\n"))
    (message,) = relay.others[1].final()
    assert len(message["content"]["text"]) == 1_100_000
