import json
import subprocess
import sys

from tutorial_lib.training.metrics import record_metrics

RECORD_MANY = """
import sys
from tutorial_lib.training.metrics import record_metrics
for value in range(20):
    record_metrics(sys.argv[1], sys.argv[2], value=value)
"""


def test_chapters_keep_each_others_figures(tmp_path):
    record_metrics(tmp_path / "new", "04", loss=2.0)
    path = record_metrics(tmp_path / "new", "02", loss=1.0, curve=[3.0, 2.0])
    record_metrics(tmp_path / "new", "04", loss=2.5)
    expected = {"02": {"loss": 1.0, "curve": [3.0, 2.0]}, "04": {"loss": 2.5}}
    assert json.loads(path.read_text()) == expected


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    chapters = [f"{number:02}" for number in range(3)]
    writers = [
        subprocess.Popen([sys.executable, "-c", RECORD_MANY, tmp_path, name]) for name in chapters
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics == {name: {"value": 19} for name in chapters}
