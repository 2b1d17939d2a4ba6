from tutorial_lib.distributed.communicator import Communicator


def test_one_rank_alone_is_the_main_one() -> None:
    assert Communicator.rank() == 0
    assert Communicator.num_workers() == 1
    assert Communicator.is_main()
    Communicator.barrier()
    Communicator.finalize()
    Communicator.finalize()
