import pytest
import torch
import torch.distributed as dist

mpi_types = pytest.importorskip("tutorial_lib.distributed.mpi_types")


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.complex64, torch.float8_e5m2])
@pytest.mark.parametrize("shape", [(), (0,), (3, 2)])
def test_packing_and_unpacking_keeps_every_value(dtype, shape):
    tensors = [torch.randint(0, 2, shape).float().to(dtype) for _ in range(3)]
    packed = mpi_types.packed(tensors)
    assert packed.dim() == 1
    copies = [torch.empty(shape, dtype=dtype) for _ in range(3)]
    mpi_types.unpack(packed, copies)
    for tensor, copy in zip(tensors, copies, strict=True):
        assert torch.equal(tensor.view(-1).view(torch.uint8), copy.view(-1).view(torch.uint8))


def test_only_what_mpi_cannot_work_in_is_copied():
    tensor = torch.ones(3, 4)
    assert mpi_types.staged(tensor) is tensor
    for other in (tensor.t(), torch.ones(3, dtype=torch.complex64).conj(), tensor.expand(2, 3, 4)):
        copy = mpi_types.staged(other)
        assert copy.is_contiguous()
        assert torch.equal(copy, other)
    assert mpi_types.staged(tensor, torch.float64).dtype == torch.float64


def test_a_large_tensor_is_reduced_in_pieces(monkeypatch):
    monkeypatch.setattr(mpi_types, "MAX_COUNT", 4)
    tensor = torch.arange(10, dtype=torch.int32)
    specs = list(mpi_types.pieces(tensor))
    assert [count for _, count, _ in specs] == [4, 4, 2]
    assert b"".join(bytes(memory) for memory, _, _ in specs) == tensor.numpy().tobytes()


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint16, torch.uint32, torch.int64])
def test_integers_are_divided_towards_zero(dtype):
    values = torch.tensor([7, 8, 9]).to(dtype)
    mpi_types.divide(values, 4)
    assert values.tolist() == [1, 2, 2]
    if dtype.is_signed:
        values = torch.tensor([-7], dtype=dtype)
        mpi_types.divide(values, 4)
        assert values.tolist() == [-1]


def test_overlapping_memory_is_copied_and_other_memory_is_not():
    whole = torch.arange(10.0)
    assert mpi_types.apart(whole[:5], whole[5:]).data_ptr() == whole.data_ptr()
    apart = mpi_types.apart(whole[:6], whole[5:])
    assert apart.data_ptr() != whole.data_ptr()
    assert torch.equal(apart, whole[:6])


def test_narrow_floats_widen_and_a_bool_stays_a_bool():
    assert mpi_types.reduction(torch.bfloat16, dist.ReduceOp.SUM).dtype == torch.float32
    assert mpi_types.reduction(torch.complex32, dist.ReduceOp.SUM).dtype == torch.complex64
    how = mpi_types.reduction(torch.bool, dist.ReduceOp.SUM)
    assert how.mpi_op == mpi_types.MPI.MAX
