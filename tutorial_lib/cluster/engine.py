"""The program that is one MPI rank: ipyparallel's engine, made quick to start and sure to end.

    mpiexec -n 4 python -m tutorial_lib.cluster.engine --mpi [options of ipengine]

It differs from ipengine in five ways: the threads of numerical libraries are set before any is
loaded; its helper process is forked, not started anew; it writes a log of its own and says how
far it has come; a warden, its parent, notes how it ended and clears up after it; and it ends when
its cluster's supervisor does. On another host than the supervisor's, a guard stands for that (see
remote/guard.py).
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import json
import os
import pickle
import signal
import sys
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from tutorial_lib.cluster import control, lifeline, mpi_flavour, process, rank_stages, warden
from tutorial_lib.cluster.remote import start_data
from tutorial_lib.cluster.runtime import FOLDER_VARIABLE, ClusterFolder
from tutorial_lib.distributed.topology import detect, threads_per_rank

RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MPI_RANKID")
LOCAL_SIZE_VARIABLES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
CONTROLLER_WAIT_S = 60.0
GRACE_S = 2.5

_is_told_to_stop = False


def launched_number(names: tuple[str, ...]) -> int | None:
    """What the launcher tells this process by one of several environment variables."""
    for name in names:
        with contextlib.suppress(KeyError, ValueError):
            return int(os.environ[name])
    return None


def set_threads(local_ranks: int) -> int:
    """Give numerical libraries this rank's share of the cores, before any of them is loaded.

    A smaller number that the user has set stays; a larger one would have the ranks of a host
    fight for its cores.

    Args:
        local_ranks: Number of ranks on this host.

    Returns:
        The number of threads.
    """
    share = threads_per_rank(local_ranks)
    with contextlib.suppress(KeyError, ValueError):
        share = min(share, max(1, int(os.environ["OMP_NUM_THREADS"])))
    for name in THREAD_VARIABLES:
        os.environ[name] = str(share)
    return share


def main() -> None:
    """Be one rank until told to stop."""
    rank = launched_number(RANK_VARIABLES) or 0
    warden.stand_by(rank)
    folder = _arrive(rank) or _cluster_folder()
    if folder is not None:
        warden.note_folder(folder)
        process.print_to(folder.log(f"rank-{rank}"))
        folder.report(rank, rank_stages.IMPORTING)
    import mpi4py

    engine_class = _engine_class()
    if folder is not None:
        lifeline.watch(folder.lifeline, _end)
    mpi4py.rc.initialize = False  # to know the library even if it does not start
    from mpi4py import MPI

    mpi = _mpi_library()
    if folder is not None:
        folder.report(rank, rank_stages.STARTING_MPI, mpi)
    MPI.Init_thread()
    warden.clear_up(warden.shared_memory())
    set_threads(launched_number(LOCAL_SIZE_VARIABLES) or detect().local_world_size)
    if folder is not None:
        folder.report(rank, rank_stages.FILE, mpi)
        _wait_for_controller(folder.engine_file)
        folder.report(rank, rank_stages.HUB, mpi)
    code: object = 0
    try:
        engine_class.launch_instance()
    except SystemExit as end:
        code = end.code
    except RuntimeError:
        if not _is_told_to_stop:  # then tornado complains that its loop was stopped
            traceback.print_exc()
            code = 1
    _close(code if isinstance(code, int) else 1 if code else 0)


def _mpi_library() -> str:
    from mpi4py import MPI

    return mpi_flavour.library_name(MPI.Get_library_version())


def _arrive(rank: int) -> ClusterFolder | None:
    """Link this rank to its cluster, when that may be on another host; its folder here."""
    start = start_data.take()
    if start is None:
        return None
    from tutorial_lib.cluster.remote import guard, interfaces

    try:
        arrival = guard.arrive(start, rank)
    except guard.UnreachableError as error:
        sys.exit(f"rank {rank}: {error}")
    os.environ[FOLDER_VARIABLE] = str(arrival.folder.path)
    os.environ["IPYTHONDIR"] = str(arrival.folder.path / "ipython")
    sys.argv.append(f"--profile-dir={arrival.folder.path}")
    interfaces.choose(arrival.address)
    with contextlib.suppress(OSError):
        os.chdir(Path.home())  # until the notebook says where it works
    return arrival.folder


def _cluster_folder() -> ClusterFolder | None:
    """The folder of the cluster, when it is on this host."""
    path = os.environ.get(FOLDER_VARIABLE)
    if path and Path(path, "lifeline").exists():
        return ClusterFolder(Path(path))
    return None


def _wait_for_controller(path: Path) -> None:
    """Wait until the controller's connection file is there, whole."""
    deadline = time.monotonic() + CONTROLLER_WAIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            json.loads(path.read_text(encoding="utf-8"))
            return
        time.sleep(0.01)
    sys.exit(f"no controller within {CONTROLLER_WAIT_S:.0f} s: {path} never came")


def _engine_class() -> Any:
    """IPEngine with a forked helper; made late, because importing it takes a while."""
    from ipyparallel.engine.app import IPEngine

    helper = _Helper() if sys.platform == "linux" else None

    class RankEngine(IPEngine):
        def start_nanny(self, control_url: str) -> Any:
            if helper is None:
                return super().start_nanny(control_url)  # type: ignore[no-untyped-call]
            return helper.start(
                engine_id=self.id,
                identity=self.bident,
                control_url=control_url,
                curve_serverkey=self.curve_serverkey,
                curve_secretkey=self.curve_secretkey,
                curve_publickey=self.curve_publickey,
                registration_url=self.registration_url,
                config=type(self.config)(Session=self.config.Session),
                pid=os.getpid(),
            )

        async def complete_registration(self, *arguments: Any) -> None:
            await super().complete_registration(*arguments)  # type: ignore[no-untyped-call]
            rank = launched_number(RANK_VARIABLES) or 0
            control.serve(self.kernel, rank)
            if (folder := _cluster_folder()) is not None:
                folder.report(rank, rank_stages.HEARTBEAT, _mpi_library())

        def _signal_stop(self, sig: int, frame: FrameType | None) -> None:
            global _is_told_to_stop
            _is_told_to_stop = True
            lifeline.end_within(GRACE_S, 0)
            super()._signal_stop(sig, frame)  # type: ignore[no-untyped-call]

    return RankEngine


class _Helper:
    """ipyparallel's nanny of an engine, forked before MPI and sockets exist.

    The nanny passes signals to the engine and tells the controller of its end. Started anew, it
    imports for a quarter of a second while its engine waits; forked, it is there at once.
    """

    def __init__(self) -> None:
        read_task, self._write_task = os.pipe()
        self._read_url, write_url = os.pipe()
        if os.fork() == 0:
            status = 1
            try:
                os.setsid()
                warden.spare()  # it tells the controller of the engine's end
                kept = {0, 1, 2, read_task, write_url}
                for descriptor in _open_descriptors() - kept:
                    with contextlib.suppress(OSError):
                        os.close(descriptor)
                self._serve(read_task, write_url)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(read_task)
        os.close(write_url)

    @staticmethod
    def _serve(read_task: int, write_url: int) -> None:
        from ipyparallel.engine.nanny import KernelNanny

        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with os.fdopen(read_task, "rb") as file:
            task = file.read()
        if task:  # empty when the engine ended first
            KernelNanny.main(**pickle.loads(task), pipe=os.fdopen(write_url, "w", buffering=1))

    def start(self, **task: Any) -> tuple[str, Any]:
        """Set the nanny to work.

        Returns:
            Where it takes control messages, and a pipe whose end tells it of the engine's.
        """
        with os.fdopen(self._write_task, "wb") as file:
            file.write(pickle.dumps(task))
        pipe = os.fdopen(self._read_url)
        if url := pipe.readline().strip():
            return url, pipe
        raise RuntimeError("the engine's helper process has failed")


def _open_descriptors() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")}


def _end() -> None:
    lifeline.end_within(GRACE_S, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _close(code: int) -> None:
    """End in order: the process group, what else has registered, MPI; then at once.

    The interpreter's own end is skipped: with torch loaded it takes a second, and threads of
    native libraries may meet an interpreter that is half gone.
    """
    lifeline.end_within(GRACE_S, code)
    # MPI's own end waits for the other ranks and keeps Python's lock, which this does not need.
    faulthandler.dump_traceback_later(GRACE_S + 0.5, exit=True, file=2)
    if session := sys.modules.get("tutorial_lib.distributed.session"):
        session.stop()
    atexit._run_exitfuncs()
    from mpi4py import MPI

    if not MPI.Is_finalized():
        MPI.Finalize()
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
