"""The thread that keeps data moving."""

import threading

from tutorial_lib.distributed.mpi_progress import Progress


def test_it_ends_whenever_it_is_told_to(monkeypatch):
    progress = Progress()
    clear = progress._wake.clear

    def told_meanwhile() -> None:
        progress.stop()
        clear()

    monkeypatch.setattr(progress._wake, "clear", told_meanwhile)
    thread = threading.Thread(target=progress._run, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
