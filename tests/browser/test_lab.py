"""What a reader does in JupyterLab, done by a browser: tiles, Run All, stop, unfold, dark theme."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

import nbformat
import pytest
from nbformat import NotebookNode
from playwright.sync_api import Locator, Page, WebSocket, expect

STEP_TIMEOUT_S = 240
CHAPTER = "04_distributed_gan"
TITLE = "The distributed GAN"
WATCH = """output => {
    window.seen = new Set();
    const look = () => {
        for (const image of output.querySelectorAll("img")) window.seen.add(image.src);
        window.seen.add(output.innerText);
    };
    new MutationObserver(look).observe(output, {childList: true, subtree: true, attributes: true,
                                                characterData: true});
}"""

pytestmark = [pytest.mark.engines, pytest.mark.notebooks]


def choose(page: Page, *path: str) -> None:
    """Choose from the menu bar, as ``choose(page, "Run", "Run All Cells")``."""
    page.locator(".lm-MenuBar-itemLabel", has_text=re.compile(f"^{path[0]}$")).click()
    for label in path[1:]:
        item = page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{label}$"))
        item.last.hover()
    item.last.click()


def open_launcher(page: Page) -> None:
    page.locator('[data-command="launcher:create"]').first.click()
    tile(page, "Start engines").scroll_into_view_if_needed()


def tile(page: Page, title: str) -> Locator:
    return page.locator(".jp-LauncherCard:visible", has_text=title)


def cell_with(panel: Locator, notebook: NotebookNode, source: str) -> Locator:
    """The code cell with a text; JupyterLab draws a cell only when it comes into sight."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    (number,) = [number for number, text in enumerate(code) if source in text]
    found = panel.locator(".jp-CodeCell").nth(number)
    found.scroll_into_view_if_needed()
    return found


def run_new_cell(page: Page, cells: Locator, source: str) -> Locator:
    """Insert a cell at the end, run it, and return it."""
    number = cells.count()
    cells.last.scroll_into_view_if_needed()
    cells.last.locator(".jp-InputPrompt").click()
    page.keyboard.press("b")
    expect(cells).to_have_count(number + 1)
    page.keyboard.press("Enter")
    page.keyboard.insert_text(source)
    page.keyboard.press("Control+Enter")
    return cells.last


def wait_until_run(page: Page, cell: Locator) -> None:
    """Wait for a cell's number, and keep it in sight, from where new output pushes it away."""
    deadline = time.monotonic() + 2 * STEP_TIMEOUT_S
    number = cell.locator(".jp-InputArea-prompt")
    while not re.search(r"\d", number.text_content() or ""):
        assert time.monotonic() < deadline, "Run All did not end"
        cell.scroll_into_view_if_needed()
        page.wait_for_timeout(500)


def use_dark_theme(page: Page) -> None:
    choose(page, "Settings", "Theme", "JupyterLab Dark")
    page.locator('body[data-jp-theme-light="false"]').wait_for(state="attached")


@pytest.fixture
def terminals(page: Page) -> Callable[[str], None]:
    """``terminals(text)`` waits until a terminal gets the text; on the page it is a drawing."""
    printed: list[str] = []

    def listen(socket: WebSocket) -> None:
        if "/terminals/" in socket.url:
            socket.on("framereceived", lambda frame: printed.append(str(json.loads(frame)[1])))

    def wait_for(text: str) -> None:
        deadline = time.monotonic() + STEP_TIMEOUT_S
        while text not in "".join(printed):
            assert time.monotonic() < deadline, printed
            page.wait_for_timeout(100)
        printed.clear()

    page.on("websocket", listen)
    return wait_for


@pytest.mark.timeout(900)
def test_tiles_start_ranks_and_tell_their_status(page, screenshot, terminals):
    open_launcher(page)
    screenshot("launcher")
    tile(page, "Start engines").click()
    terminals("mpi: 2 of 2 ranks, started by gan-tutorial")
    screenshot("start_engines")
    open_launcher(page)
    tile(page, "Status").click()
    terminals("mpi: 2 of 2 ranks, started by gan-tutorial")
    use_dark_theme(page)
    screenshot("status_dark")
    open_launcher(page)
    screenshot("launcher_dark")
    tile(page, "Stop engines").click()
    terminals("stopped 1")


@pytest.fixture
def short(lab):
    """The chapter with few minibatches, and without the end of its ranks."""
    path = lab.folder / "notebooks" / f"{CHAPTER}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", []):
            cell.source = re.sub(r"(?m)^minibatches = \d+", "minibatches = 40", cell.source)
        if "clean-up" in cell.metadata.get("tags", []):
            cell.source = "len(ranks)"
    nbformat.write(notebook, path)
    return notebook


@pytest.mark.timeout(900)
def test_the_distributed_chapter_is_run_watched_stopped_and_read(page, screenshot, short):
    open_launcher(page)
    tile(page, TITLE).click()
    panel = page.locator(".jp-NotebookPanel:visible")
    cells = panel.locator(".jp-CodeCell")
    expect(panel.locator("h1")).to_contain_text(TITLE)
    panel.locator('[data-status="idle"]').first.wait_for()
    training_code = "seconds = time.perf_counter() - start_s"
    training = cell_with(panel, short, training_code)

    choose(page, "Run", "Run All Cells")
    training.locator(".jp-Cell-outputArea").evaluate(WATCH)
    training.scroll_into_view_if_needed()
    page.wait_for_function("window.seen.size > 2")
    screenshot("training")
    wait_until_run(page, cells.last)
    assert panel.locator('[data-mime-type="application/vnd.jupyter.error"]').count() == 0
    pictures = page.evaluate("[...window.seen].filter(text => text.startsWith('data:')).length")
    if any(" live(" in cell.source for cell in short.cells):
        assert pictures > 1, "the grid did not change"

    talk = run_new_cell(page, cells, "%%ranks\nfor i in range(20): print(f'{i} from {rank}')")
    folded = talk.locator("details")
    expect(folded.locator("summary")).to_contain_text("rank 1: 19 from 1 (20 lines)")
    expect(folded.locator("pre")).to_be_hidden()
    screenshot("folded")
    folded.locator("summary").click()
    expect(folded.locator("pre")).to_contain_text("7 from 1")
    expect(folded.locator("pre")).to_be_visible()
    screenshot("unfolded")

    long = run_new_cell(page, cells, "%%ranks\nprint('begun')\nimport time; time.sleep(600)")
    expect(long.locator(".jp-Cell-outputArea")).to_contain_text("begun")
    panel.locator('[data-command="notebook:interrupt-kernel"]').click()
    expect(long.locator(".jp-Cell-outputArea")).to_contain_text("KeyboardInterrupt")
    long.locator(".jp-Cell-outputArea").scroll_into_view_if_needed()
    screenshot("interrupted")
    next_one = run_new_cell(page, cells, "%%ranks\nworld_size * 100 + rank")
    expect(next_one.locator(".jp-Cell-outputArea")).to_contain_text("{0: 200, 1: 201}")

    use_dark_theme(page)
    for name, picture_of in {"training": training_code, "curves": "loss_curves({"}.items():
        output = cell_with(panel, short, picture_of).locator(".jp-Cell-outputArea")
        picture = output.locator("img").first
        picture.scroll_into_view_if_needed()
        assert picture.get_attribute("alt")
        screenshot(f"dark_{name}")
    panel.locator("h1").first.scroll_into_view_if_needed()
    screenshot("dark_start")
