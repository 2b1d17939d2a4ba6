import os
from pathlib import Path

import pytest
import torch

from tutorial_lib.data.errors import DataError
from tutorial_lib.models.gan import Discriminator, Generator
from tutorial_lib.training.checkpoint import load_generator, save_generator
from tutorial_lib.training.samples import draw_samples


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_saved_generator_draws_the_same(tmp_path, dtype):
    generator = Generator(seed=9).to(dtype)
    save_generator(tmp_path / "generator.pt", generator, minibatches=3, seed=9)
    loaded, facts = load_generator(tmp_path / "generator.pt")
    assert facts == {"minibatches": 3, "seed": 9}
    assert next(loaded.parameters()).dtype == dtype
    assert (draw_samples(loaded) == draw_samples(generator)).all()
    assert os.listdir(tmp_path) == ["generator.pt"]


def test_a_file_cut_short_is_refused(tmp_path):
    path = tmp_path / "generator.pt"
    save_generator(path, Generator())
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(DataError, match=r"generator\.pt: expected a generator saved by this"):
        load_generator(path)


@pytest.mark.parametrize("content", [b"", b"root:x:0:0:root", b"q0:x", b"PK", b"\x80\x02}q\x01."])
def test_a_file_that_is_not_torch_s_is_refused(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"notes\.txt: expected a generator saved by this"):
        load_generator(path)


def test_a_missing_file_says_how_to_make_one(tmp_path):
    with pytest.raises(DataError, match=r"no such file.*basic_gan --save"):
        load_generator(tmp_path / "generator.pt")


class Mischief:
    def __reduce__(self):
        return os.system, ("exit 3",)


@pytest.mark.parametrize(
    "content",
    [
        {"weights": {}},
        Discriminator().state_dict(),
        {"format": "gan-tutorial generator 1", "weights": Discriminator().state_dict()},
        Mischief(),
    ],
)
def test_a_foreign_file_is_refused_and_never_run(tmp_path, content):
    torch.save(content, tmp_path / "foreign.pt")
    with pytest.raises(DataError, match=r"foreign\.pt: expected a generator"):
        load_generator(tmp_path / "foreign.pt")


def test_a_save_that_fails_keeps_the_old_file(tmp_path):
    path = tmp_path / "generator.pt"
    save_generator(path, Generator(seed=1))
    before = path.read_bytes()
    with pytest.raises(Exception, match="pickle"):
        save_generator(path, Generator(seed=2), broken=lambda: None)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["generator.pt"]


def test_samples_depend_on_the_seed_alone():
    generator = Generator()
    first = draw_samples(generator, 5, seed=1)
    assert first.shape == (5, 28, 28)
    assert (first == draw_samples(generator, 5, seed=1)).all()
    assert (first != draw_samples(generator, 5, seed=2)).any()


@pytest.mark.mpi
@pytest.mark.parametrize("kind", ["one bit", "block momentum"])
def test_a_gan_goes_on_as_if_it_had_not_been_saved(mpiexec, tmp_path, kind):
    done = mpiexec(2, Path(__file__).parent / "programs" / "gan_resume.py", tmp_path, kind)
    assert "all as expected" in done.stdout
