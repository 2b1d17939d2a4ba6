"""Against tests/fidelity/golden/partition.txt, recorded from CNTK 2.7, and its described rules."""

import pytest
import torch

from tutorial_lib.data.cntk_reader import CntkReader, chunk_lengths
from tutorial_lib.data.ctf import write_ctf
from tutorial_lib.data.datasets import mnist


@pytest.fixture(scope="module")
def train():
    return mnist().train


def sweep_ends(reader, workers, rank, minibatches):
    parts = [reader.next_minibatch(1024, workers, rank) for _ in range(minibatches)]
    return [number for number, part in enumerate(parts) if part.is_sweep_end], parts


def test_chunks_are_cntks(train):
    assert chunk_lengths(train.features) == [18008, 18021, 18022, 5949]


def test_chunks_follow_the_bytes_of_the_text(train, tmp_path):
    pixels, labels = train.features[:500], train.labels[:500]
    write_ctf(tmp_path / "text", pixels.numpy(), labels.numpy().astype("uint8"))
    lines = [len(line) + 1 for line in (tmp_path / "text").read_bytes().splitlines()]
    lengths, size = [0], 0
    for line in lines:
        if size + line > 50_000:
            lengths.append(0)
            size = 0
        size += line
        lengths[-1] += 1
    assert chunk_lengths(pixels, chunk_bytes=50_000) == lengths


@pytest.mark.parametrize(
    ("workers", "rank", "ends"),
    [(1, 0, [58, 117]), (2, 0, [70, 117]), (2, 1, [46, 117])],
)
def test_sweeps_end_where_cntks_do(train, workers, rank, ends):
    found, parts = sweep_ends(CntkReader(train), workers, rank, 130)
    assert found == ends
    assert sum(len(part.labels) for part in parts) == 130 * 1024 // workers


@pytest.mark.parametrize(
    ("workers", "rank", "full", "last"), [(1, 0, 1024, 608), (2, 1, 512, 304), (8, 7, 128, 76)]
)
def test_in_order_there_is_one_sweep(train, workers, rank, full, last):
    ends, parts = sweep_ends(CntkReader(train, randomize=False), workers, rank, 60)
    assert ends == [58]
    assert [len(part.labels) for part in parts] == [full] * 58 + [last, 0]
    indices = torch.cat([part.indices for part in parts])
    assert torch.equal(indices, torch.arange(rank, 60_000, workers))


def test_a_worker_without_a_chunk_gets_nothing(train):
    part = CntkReader(train).next_minibatch(1024, 5, 4)
    assert len(part.labels) == 0
    assert part.global_size == 4 * 205


def test_workers_share_a_sweep_without_overlap(train):
    def first_sweep(rank):
        reader = CntkReader(train)
        size = len(reader._worker_order(0, 4, rank))
        return reader.next_minibatch(4 * size, 4, rank).indices

    together = torch.cat([first_sweep(rank) for rank in range(4)])
    assert torch.equal(together.sort().values, torch.arange(60_000))


def test_a_worker_continues_from_its_state(train):
    reader = CntkReader(train)
    for _ in range(3):
        reader.next_minibatch(40_000, 2, 1)
    again = CntkReader(train)
    again.load_state_dict(reader.state_dict())
    expected = reader.next_minibatch(1024, 2, 1).indices
    assert torch.equal(again.next_minibatch(1024, 2, 1).indices, expected)
