"""The checker follows every recorded run, and notices one that it can't."""

import json
import shutil
import sys
from pathlib import Path

import psutil
import pytest

from tutorial_lib.compat import recorded
from tutorial_lib.compat.check import main

GOLDEN = Path(__file__).parents[1] / "fidelity" / "golden"
FILES = sorted(GOLDEN.glob("*.json"))
BY_THREADS = [path for path in FILES if not path.name.startswith("gan_")]


def test_every_recorded_learner_sum_and_block_is_followed(capsys):
    assert main([str(path) for path in BY_THREADS]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("ok") for line in lines)
    cases = json.loads((GOLDEN / "learners.json").read_text())["cases"]
    runs = {path.name.rpartition("_r")[0] for path in BY_THREADS} - {""}
    assert len(lines) == len(cases) + len(runs)


@pytest.mark.parametrize("name", ["gan_w1_rank0.json", "gan_quant1bit_w2_rank0.json"])
def test_a_recorded_gan_is_trained_again(name, capsys):
    assert main([str(GOLDEN / name)]) == 0
    assert capsys.readouterr().out.startswith("ok")


def changed(tmp_path, name, change):
    content = json.loads((GOLDEN / name).read_text())
    change(content)
    path = tmp_path / name
    path.write_text(json.dumps(content))
    return str(path)


def test_a_parameter_off_by_a_millionth_is_noticed(tmp_path, capsys):
    def change(content):
        content["cases"]["adam_ps"]["param"][7][0] += 1e-6

    assert main([changed(tmp_path, "learners.json", change)]) == 1
    failed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAIL")]
    assert len(failed) == 1
    assert "adam_ps" in failed[0]


def test_a_wrong_count_is_noticed(tmp_path):
    def change(content):
        content["steps"][5]["tot"] += 1

    assert main([changed(tmp_path, "bm_tc_n1_r0.json", change)]) == 1


def test_a_sum_off_by_more_than_rounding_is_noticed(tmp_path):
    shutil.copy(GOLDEN / "quant_b4_n2_r1.json", tmp_path)

    def change(content):
        content["steps"][3]["aggb"][0] += 1e-3

    assert main([changed(tmp_path, "quant_b4_n2_r0.json", change)]) == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "expected a recorded file, found nothing there"),
        ("no json", "expected a recorded JSON file"),
        ("[1]", "expected a recorded JSON object, found list"),
        ('{"a": 1}', "with the keys ['a']"),
    ],
)
def test_another_file_is_refused(tmp_path, capsys, content, said):
    path = tmp_path / "other.json"
    if content is not None:
        path.write_text(content)
    assert main([str(path)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("value", ["NaN", "Infinity"])
def test_what_is_no_number_is_not_followed(tmp_path, value):
    def change(content):
        content["cases"] = {"adam_ps": content["cases"]["adam_ps"]}
        content["cases"]["adam_ps"]["param"][7][0] = float(value)

    assert main([changed(tmp_path, "learners.json", change)]) == 1


def test_a_case_that_cannot_be_done_does_not_keep_it_from_the_others(tmp_path, capsys):
    def change(content):
        cases = content["cases"]
        content["cases"] = {"other": {"learner": "rprop"}, "adam_ps": cases["adam_ps"]}

    files = [str(tmp_path / "nowhere.json"), changed(tmp_path, "learners.json", change)]
    assert main([*files, str(GOLDEN / "bm_tc_n1_r0.json")]) == 2
    said = capsys.readouterr()
    assert [line.split()[2] for line in said.out.splitlines()] == ["adam_ps", "bm_tc_n1"]
    assert [line.split(":")[0] for line in said.err.splitlines()] == ["error", "error"]


def test_a_missing_ranks_file_is_named(tmp_path, capsys):
    shutil.copy(GOLDEN / "quant_b1_n2_r0.json", tmp_path)
    assert main([str(tmp_path / "quant_b1_n2_r0.json")]) == 2
    assert "quant_b1_n2_r1.json" in capsys.readouterr().err


STUCK_RANK = """
import os, signal, sys, time
from pathlib import Path
import psutil

folder = Path(sys.argv[1])
(folder / os.environ["RANK"]).write_text(str(os.getpid()))
while len([path for path in folder.iterdir() if path.read_text()]) < 2:
    time.sleep(0.01)
if os.environ["RANK"] == "0":
    os.kill(psutil.Process(os.getppid()).ppid(), signal.SIGINT)
time.sleep(600)
"""


def test_an_interrupted_replay_leaves_no_rank(tmp_path):
    program, folder = tmp_path / "rank.py", tmp_path / "pids"
    program.write_text(STUCK_RANK)
    folder.mkdir()
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    with pytest.raises(KeyboardInterrupt):
        recorded._run([sys.executable, *torchrun, str(program), str(folder)])
    pids = [int(path.read_text()) for path in folder.iterdir()]
    assert len(pids) == 2
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
