"""A reader's JupyterLab as ``gan-tutorial lab`` starts it, and a real browser before it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Page, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
START_TIMEOUT_S = 400
STEP_TIMEOUT_S = 240
SIZE = {"width": 1360, "height": 1000}


@dataclass(frozen=True)
class Lab:
    """A JupyterLab that runs.

    Args:
        url: its start page, with the token.
        folder: what it shows.
    """

    url: str
    folder: Path


@pytest.fixture
def chromium() -> str:
    for name in NAMES:
        if found := shutil.which(name):
            return found
    pytest.skip(f"no browser: install one of {', '.join(NAMES)}")


@pytest.fixture
def lab(chromium: str, tmp_path: Path) -> Iterator[Lab]:
    """JupyterLab on fresh copies of the notebooks. All that it starts ends with the test."""
    places = ("HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    places += ("GAN_TUTORIAL_RUNTIME_DIR", "GAN_TUTORIAL_STATE_DIR", "TMPDIR")
    own = {name: str(tmp_path / name.lower()) for name in places}
    for place in own.values():
        Path(place).mkdir()
    env = {**os.environ, **own, "OMP_NUM_THREADS": "1"}
    folder, log = tmp_path / "lab", tmp_path / "log"
    program = Path(sys.executable).with_name("gan-tutorial")
    flags = ["--no-browser", "--port=0", "--ip=127.0.0.1", "--IdentityProvider.token=secret"]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [program, "lab", folder, *flags],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (found := re.search(r"http://127\.0\.0\.1:[1-9]\d*", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield Lab(f"{found[0]}/?token=secret", folder)
    finally:
        if any("cluster.json" in files for *_, files in os.walk(own["GAN_TUTORIAL_RUNTIME_DIR"])):
            subprocess.run([program, "cluster", "stop"], env=env, timeout=120, check=False)
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        _, alive = psutil.wait_procs(started, timeout=60)
        names = []
        for left in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                names.append(" ".join(left.cmdline()))
                left.kill()
    assert names == []


@pytest.fixture
def page(chromium: str, lab: Lab) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE, device_scale_factor=1)
        page.set_default_timeout(1000 * STEP_TIMEOUT_S)
        expect.set_options(timeout=1000 * STEP_TIMEOUT_S)
        page.goto(lab.url)
        page.locator("#jupyterlab-splash").wait_for(state="detached")
        page.locator(".jp-NotebookPanel:visible h1").first.wait_for()  # it opens the first chapter
        page.get_by_role("button", name="No", exact=True).click()  # no news of Jupyter
        yield page
        browser.close()


@pytest.fixture
def screenshot(repository: Path, page: Page) -> Callable[[str], None]:
    """``screenshot("name")`` keeps what the browser shows, in outputs/screenshots."""
    folder = repository / "outputs" / "screenshots"

    def shoot(name: str) -> None:
        page.wait_for_timeout(300)  # for what fades
        page.screenshot(path=folder / f"{name}.png")

    return shoot
