"""Ranks that want GPUs: without any they compute on CPUs, and the notebook is told once."""

from __future__ import annotations

import pytest
import torch

from tutorial_lib.cluster import Cluster
from tutorial_lib.cluster.launch import plan_launch
from tutorial_lib.distributed.gpu_placement import DEVICE_VARIABLE

DEVICES = """
from tutorial_lib.distributed import session
me = session.start()
(str(me.device), me.backend)
"""


def test_only_this_profile_wants_gpus(monkeypatch):
    monkeypatch.delenv(DEVICE_VARIABLE, raising=False)
    assert plan_launch("mpi_gpu", 2, ("x",)).environment[DEVICE_VARIABLE] == "gpu"
    assert DEVICE_VARIABLE not in plan_launch("mpi", 2, ("x",)).environment
    assert plan_launch("mpi_gpu", 2, ("x",)).peers == ()


@pytest.mark.engines
@pytest.mark.skipif(torch.cuda.is_available(), reason="is about hosts without a GPU")
def test_without_gpus_ranks_work_and_the_notebook_is_told(capsys):
    with Cluster(n=2, profile="mpi_gpu", attach=False) as ranks:
        assert ranks.run(DEVICES) == {0: ("cpu", "mpi4py"), 1: ("cpu", "mpi4py")}
        told = capsys.readouterr().err
        assert told.count("Note: torch sees no GPU on") == 1
        assert "all ranks compute on CPUs and talk by mpi4py" in told
        ranks.run("1")
        assert "Note" not in capsys.readouterr().err


@pytest.mark.engines
@pytest.mark.skipif(torch.cuda.is_available(), reason="is about hosts without a GPU")
def test_ranks_that_do_not_ask_for_gpus_are_told_nothing(capsys):
    with Cluster(n=2, profile="mpi", attach=False) as ranks:
        assert ranks.run(DEVICES)[0] == ("cpu", "mpi4py")
    assert "GPU" not in capsys.readouterr().err
