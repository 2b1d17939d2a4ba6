"""The board of a training under way: what it says, what it draws, and how often."""

from __future__ import annotations

import base64
import io
import re
import time
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from tutorial_lib.display.live_board import CURVE_POINTS, SHARE, LiveBoard, pack_images
from tutorial_lib.display.tiling import GAP

SVG = "{http://www.w3.org/2000/svg}"


def report(rank: int, step: int, **more: Any) -> dict[str, Any]:
    return {
        "rank": rank,
        "ranks": 3,
        "step": step,
        "steps": 200,
        "seconds": 10.0,
        "samples": 3000 * step,
        "host": "here",
        "device": "cpu",
        "threads": 2,
        "memory_bytes": 2**28,
        "communication": 0.125,
        "is_over": False,
        **more,
    }


def picture(board: LiveBoard) -> ElementTree.Element:
    (content,) = re.findall(r'svg\+xml;base64,([^"]+)', board.bundle()["text/html"])
    return ElementTree.fromstring(base64.b64decode(content))


def test_bar_and_table_tell_of_all_ranks() -> None:
    board = LiveBoard()
    for rank, step in ((2, 40), (0, 50), (1, 52)):
        board.take(report(rank, step))
    bar, headings, *rows = board.text().splitlines()
    assert bar.endswith("step 50 of 200, other ranks at 40 to 52, 15,000 samples/s, 30 s left")
    assert bar.count("━") == round(30 * 50 / 200)
    assert headings.split()[-1] == "communication"
    assert rows[0].split() == ["0", "here", "cpu", "2", "50", "5,000", "256", "MiB", "12%"]
    assert [row.split()[0] for row in rows] == ["0", "1", "2"]
    board.take(report(0, 200, is_over=True))
    assert board.bar() == f"{'━' * 30} step 200 of 200, 60,000 samples/s, 10 s"
    board.take(report(0, 199, is_over=True))
    assert board.bar().endswith("10 s, stopped")


def test_first_report_of_nothing_is_drawn() -> None:
    board = LiveBoard()
    assert not board.is_due()
    board.take(report(1, 0))
    assert not board.is_due()  # rank 0 has not begun
    board.take(report(0, 0, seconds=0.0, communication=None))
    assert board.is_due()
    assert board.bundle()["text/html"].startswith("<pre>┄┄")
    assert "not known" in board.text()


def test_samples_arrive_pixel_for_pixel() -> None:
    images = np.random.default_rng(0).uniform(-1, 1, (36, 28, 28))
    board = LiveBoard()
    board.take(report(0, 1, images=pack_images(images)))
    (image,) = picture(board).iter(f"{SVG}image")
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(image.attrib["href"][22:]))))
    assert pixels.shape == 2 * (6 * 28 + 5 * GAP,)
    for index, drawn in enumerate(images):
        top, left = (28 + GAP) * np.array(divmod(index, 6))
        part = pixels[top : top + 28, left : left + 28] / 127.5 - 1
        assert np.abs(part - drawn).max() < 2.1 / 127.5


@pytest.mark.parametrize("n", [1, 7, CURVE_POINTS, CURVE_POINTS + 1, 40_000])
def test_curves_have_few_points_and_all_of_the_range(n: int) -> None:
    board = LiveBoard()
    steps = list(range(1, n + 1))
    falling = [1.0 - step / n for step in steps]
    for start in range(0, n, 1000):  # as they come, a few at a time
        part = slice(start, start + 1000)
        losses = {"<D>": (steps[part], falling[part]), "G": (steps[part], [0.5] * len(steps[part]))}
        board.take(report(0, min(start + 1000, n), losses=losses))
    lines = list(picture(board).iter(f"{SVG}polyline"))
    assert len(lines) == 2
    assert len({line.attrib["stroke-dasharray"] for line in lines}) == 2  # not by colour alone
    points = np.array([p.split(",") for p in lines[0].attrib["points"].split()], float)
    assert min(n, CURVE_POINTS / 2) <= len(points) <= CURVE_POINTS
    assert (np.diff(points[:, 0]) > 0).all()
    assert (np.diff(points[:, 1]) > 0).all()  # the loss falls, the picture's y grows
    assert "G 0.500" in board.alt()


def test_values_that_are_not_finite_leave_a_picture() -> None:
    board = LiveBoard()
    board.take(report(0, 3, losses={"G": ([1, 2, 3], [float("nan"), 2.0, float("inf")])}))
    (line,) = picture(board).iter(f"{SVG}polyline")
    assert len(line.attrib["points"].split()) == 1
    board.take(report(0, 1, losses={"D": ([1], [float("nan")])}))
    picture(board)


def test_board_that_is_slow_to_draw_is_drawn_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    board = LiveBoard()

    def text() -> str:
        nonlocal now
        now += 0.1  # a busy machine
        return "text"

    monkeypatch.setattr(board, "text", text)
    drawn_s = 0.0
    while now < 200:
        board.take(report(0, 1))
        if board.is_due():
            board.bundle()
            drawn_s += 0.1
        now += 0.05
    assert 0.5 * SHARE < drawn_s / 100 < 1.2 * SHARE
