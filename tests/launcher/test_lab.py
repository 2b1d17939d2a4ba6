import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import psutil
import pytest

from tutorial_lib.launcher import lab
from tutorial_lib.launcher.errors import CommandError


@pytest.fixture
def originals(tmp_path, monkeypatch):
    """Two notebooks and a profile to copy from, with what running leaves beside them."""
    notebooks, profiles = tmp_path / "notebooks", tmp_path / "cluster_profiles"
    for path, content in {
        notebooks / "00_a.ipynb": "a",
        notebooks / "01_b.ipynb": "b",
        notebooks / ".ipynb_checkpoints" / "00_a.ipynb": "old",
        profiles / "profile_mpi" / "ipcluster_config.py": "c",
        profiles / "profile_mpi" / "security" / "client.json": "a key",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    monkeypatch.setattr(lab, "notebooks_folder", lambda: notebooks)
    monkeypatch.setattr(lab, "profiles_folder", lambda: profiles)
    return notebooks


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def test_copies_are_complete_and_free_of_keys(originals, tmp_path):
    target = tmp_path / "mine"
    assert lab.copy_materials(target) == [f"copied 3 files to {target}"]
    assert files(target) == {
        "notebooks/00_a.ipynb": "a",
        "notebooks/01_b.ipynb": "b",
        "cluster_profiles/profile_mpi/ipcluster_config.py": "c",
    }
    assert lab.copy_materials(target) == []


def test_a_reader_s_changes_stay_and_the_rest_is_brought_up_to_date(originals, tmp_path):
    target = tmp_path / "mine"
    lab.copy_materials(target)
    (target / "notebooks/00_a.ipynb").write_text("my answer")
    (target / "notebooks/own.ipynb").write_text("mine")
    (originals / "00_a.ipynb").write_text("a, second edition")
    (originals / "01_b.ipynb").write_text("b, second edition")
    for copied in (1, 0):
        lines = lab.copy_materials(target)
        assert len(lines) == copied + 1
        assert "kept your notebooks/00_a.ipynb" in lines[-1]
    there = files(target)
    assert there["notebooks/00_a.ipynb"] == "my answer"
    assert there["notebooks/01_b.ipynb"] == "b, second edition"
    assert there["notebooks/own.ipynb"] == "mine"
    (target / "notebooks/00_a.ipynb").rename(target / "notebooks/00_a_mine.ipynb")
    assert len(lab.copy_materials(target)) == 1
    assert files(target)["notebooks/00_a.ipynb"] == "a, second edition"


def test_files_of_that_name_that_were_there_before_are_not_overwritten(originals, tmp_path):
    target = tmp_path / "mine"
    (target / "notebooks").mkdir(parents=True)
    (target / "notebooks/00_a.ipynb").write_text("something else")
    assert "kept your notebooks/00_a.ipynb" in lab.copy_materials(target)[-1]
    assert files(target)["notebooks/00_a.ipynb"] == "something else"


def test_a_folder_that_cannot_be_made_is_a_mistake(originals, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match="cannot write to"):
        lab.prepare(tmp_path / "file" / "mine")


def test_a_clone_opens_its_own_notebooks_unless_told_otherwise(originals, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert lab.prepare(None) == lab.prepare(lab.clone()) == (lab.clone(), [])
    assert lab.prepare(tmp_path / "mine")[0] == tmp_path / "mine"
    monkeypatch.setattr(lab, "clone", lambda: None)
    assert lab.prepare(None)[0] == tmp_path / "gan-tutorial"


@pytest.mark.timeout(300)
def test_jupyterlab_starts_on_the_copies_and_serves_them(tmp_path, jupyter_home):
    target = tmp_path / "mine"
    command = "from tutorial_lib.launcher.cli import main; main()"
    flags = ["--no-browser", "--port=0", "--ServerApp.token=secret", "--ServerApp.ip=127.0.0.1"]
    log, temporary = tmp_path / "log", tmp_path / "temporary"
    temporary.mkdir()
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", command, "lab", target, *flags],
            env={**jupyter_home, "TMPDIR": str(temporary)},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        url = wait_for_url(log, process)
        listing = ask(f"{url}/api/contents/notebooks")
        names = [entry["name"] for entry in listing["content"]]
        assert any(re.fullmatch(r"\d\d_\w+\.ipynb", name) for name in names)
        assert "python3" in ask(f"{url}/api/kernelspecs")["kernelspecs"]
        tiles = ask(f"{url}/jupyterlab-app-launcher", {"method": "init_launcher"})
        assert [t["title"] for t in tiles][-3:] == ["Start engines", "Status", "Stop engines"]
        assert any(temporary.iterdir())
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)
    assert not psutil.pid_exists(process.pid)
    assert list(temporary.iterdir()) == []


def wait_for_url(log, process):
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:[1-9]\d*", log.read_text()):
            return found[0]
        time.sleep(0.1)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()}")


def ask(url, question=None):
    body = None if question is None else json.dumps(question).encode()
    request = urllib.request.Request(url, body, {"Authorization": "token secret"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)
