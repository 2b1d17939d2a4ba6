"""Chapter 09 says what takes the place of each of CNTK's calls; all of it must exist."""

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

CHAPTER = Path(__file__).resolve().parents[2] / "notebooks" / "09_from_cntk_to_pytorch.ipynb"
ROW = re.compile(r"^\| (?P<old>.+) \| (?P<new>.+) \| `(?P<module>[\w.]+)` \|$", re.MULTILINE)
NAME = re.compile(r"`([A-Za-z_][\w.]*)`")

# What CNTK's Basic_GAN_Distributed.py calls, then the rest of CNTK's API that the library has.
EXAMPLE = """input_variable Dense default_options xavier relu tanh sigmoid log clone parameters eval
CTFDeserializer StreamDefs StreamDef MinibatchSource INFINITELY_REPEAT next_minibatch
np.random.uniform try_set_default_device set_fixed_random_seed fsadagrad
learning_parameter_schedule_per_sample momentum_schedule_per_sample
data_parallel_distributed_learner Communicator.rank Communicator.num_workers
Communicator.finalize Trainer train_minibatch previous_minibatch_loss_average
ProgressPrinter"""
API = """learning_parameter_schedule momentum_schedule momentum_as_time_constant_schedule IGNORE sgd
momentum_sgd nesterov adam block_momentum_distributed_learner set_as_metric_aggregator
communicator Communicator.is_main Communicator.barrier learning_rate reset_learning_rate update
test_minibatch previous_minibatch_evaluation_average previous_minibatch_sample_count
total_number_of_samples_seen summarize_training_progress summarize_test_progress
save_checkpoint restore_from_checkpoint TensorBoardProgressWriter training_session
CheckpointConfig CrossValidationConfig TestConfig"""


@pytest.fixture(scope="module")
def rows() -> list[re.Match[str]]:
    cells = nbformat.read(CHAPTER, as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return list(ROW.finditer(text))


def exists(module: ModuleType, name: str) -> bool:
    """Whether a name, or an attribute that a class's methods set, is in the module."""
    place: object = module
    for part in name.split("."):
        if not hasattr(place, part):
            return inspect.isclass(place) and f"self.{part} = " in inspect.getsource(place)
        place = getattr(place, part)
    return True


def test_every_new_name_exists(rows):
    assert len(rows) > 30
    for row in rows:
        module = importlib.import_module(row["module"])
        names = NAME.findall(row["new"])
        assert names, row["new"]
        for name in names:
            assert exists(module, name), f"{row['module']} has no {name}"


@pytest.mark.parametrize("old", [*EXAMPLE.split(), *API.split()])
def test_every_old_call_has_a_row(rows, old):
    pattern = rf"(?<![\w]){re.escape(old)}(?!\w)"
    assert any(re.search(pattern, row["old"]) for row in rows), f"no row for {old}"


def test_a_name_that_is_missing_is_noticed():
    module = importlib.import_module("tutorial_lib.training.trainer")
    assert exists(module, "Trainer.total_number_of_samples_seen")
    assert not exists(module, "Trainer.total_number_of_sweeps")
    assert not exists(module, "Trainers")
