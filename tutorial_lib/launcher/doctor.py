"""Is this machine ready? One finding a line: OK, or what to do about it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from tutorial_lib.cluster.errors import ClusterError
from tutorial_lib.cluster.mpi_flavour import MpiFlavour, detect
from tutorial_lib.display.findings import Finding, Verdict
from tutorial_lib.distributed.topology import available_cores, threads_per_rank

GIB = 1 << 30
NEEDED_MEMORY_BYTES = 2 * GIB
NEEDED_SHARED_BYTES = 64 << 20
PROBE_TIMEOUT_S = 60.0
MOST_CORES_PROVED = 4

# What mpi4py was loaded with, as the library names itself; one line.
LIBRARY = "from mpi4py import MPI; print(MPI.Get_library_version().splitlines()[0].strip('\\0 '))"
# Each rank's number summed on all of them, through MPI itself.
ALL_REDUCE = (
    "from mpi4py import MPI; world = MPI.COMM_WORLD; total = world.allreduce(world.rank + 1); "
    "print('ranks', world.size, 'sum', total) if world.rank == 0 else None"
)


def examine() -> Iterator[Finding]:
    """Look at everything the walkthrough needs, quick things first."""
    for check in (python, packages, cores, memory, shared_memory, network, gpus, jupyter, tiles):
        yield _look(check)
    try:
        mpi = detect()
    except ClusterError as error:
        yield Finding(Verdict.FIX, "MPI", " ".join(str(error).split()))
        return
    for question in (mpiexec, library, root, all_reduce):
        yield _look(question, mpi)


def _look(check: Callable[..., Finding], *arguments: MpiFlavour) -> Finding:
    """Look at one thing. What breaks on the way, a package that is half there, is a finding too."""
    try:
        return check(*arguments)
    except Exception as error:
        subject = check.__name__.replace("_", " ").capitalize()
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return Finding(Verdict.FIX, subject, f"{text}: install gan-tutorial again")


def python() -> Finding:
    """Which Python this is; one older than 3.11 cannot even install the package."""
    return Finding(Verdict.OK, "Python", f"{platform.python_version()}, {sys.executable}")


def packages() -> Finding:
    """The packages that everything rests on."""
    found = []
    for name in ("torch", "mpi4py", "ipyparallel"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            return Finding(Verdict.FIX, "Packages", f"{name} is missing: pip install gan-tutorial")
    return Finding(Verdict.OK, "Packages", ", ".join(found))


def cores() -> Finding:
    """How many cores this process may use, and how the ranks share them."""
    count = available_cores()
    text = f"{count} usable; 2 ranks get {threads_per_rank(2)} thread(s) each"
    if asked := os.environ.get("OMP_NUM_THREADS"):
        text += f"; OMP_NUM_THREADS={asked} is set in your shell"
    if count < 2:
        return Finding(Verdict.NOTE, "Cores", f"{text}: ranks take turns, which works but is slow")
    return Finding(Verdict.OK, "Cores", text)


def memory() -> Finding:
    """Free memory; each rank holds its own PyTorch."""
    free = psutil.virtual_memory().available
    text = f"{free / GIB:.1f} GiB free"
    if free < NEEDED_MEMORY_BYTES:
        return Finding(
            Verdict.NOTE, "Memory", f"{text}; 2 ranks want about 2 GiB: close other programs"
        )
    return Finding(Verdict.OK, "Memory", text)


def shared_memory(folder: Path = Path("/dev/shm")) -> Finding:
    """Where ranks on one machine exchange data."""
    if not folder.exists() and platform.system() != "Linux":
        return Finding(Verdict.OK, str(folder), "not used on this system")
    if not os.access(folder, os.W_OK):
        return Finding(Verdict.FIX, str(folder), "cannot be written; mount a tmpfs there")
    free = shutil.disk_usage(folder).free
    text = f"{free / GIB:.2f} GiB free"
    if free < NEEDED_SHARED_BYTES:
        return Finding(
            Verdict.FIX, str(folder), f"{text}: remove what fills it; in Docker use --shm-size=1g"
        )
    return Finding(Verdict.OK, str(folder), text)


def network(host: str | None = None) -> Finding:
    """Loopback, which carries notebook to engines, and the host's own name, which MPI looks up."""
    host = host or socket.gethostname()
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError as error:
        return Finding(
            Verdict.FIX,
            "Network",
            f"no connection over 127.0.0.1 ({error}): bring up the loopback interface",
        )
    try:
        address = socket.gethostbyname(host)
    except OSError:
        return Finding(
            Verdict.FIX,
            "Network",
            f"host name {host} has no address: add the line '127.0.1.1 {host}' to /etc/hosts",
        )
    return Finding(Verdict.OK, "Network", f"loopback works, {host} is {address}")


def gpus() -> Finding:
    """Graphics cards that PyTorch can use, and NCCL, which connects them."""
    import torch

    if not torch.cuda.is_available():
        return Finding(Verdict.OK, "GPU", "none that PyTorch can use; the walkthrough needs none")
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    found = f"{len(names)} of {names[0]}" if len(set(names)) == 1 else ", ".join(names)
    if not torch.distributed.is_nccl_available():
        return Finding(Verdict.NOTE, "GPU", f"{found}, without NCCL: ranks talk by gloo or MPI")
    version = ".".join(map(str, torch.cuda.nccl.version()))
    return Finding(
        Verdict.OK, "GPU", f"{found}, NCCL {version}, for at most {len(names)} rank(s), one a GPU"
    )


def jupyter() -> Finding:
    """JupyterLab, and a kernel that is this very Python."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        version = importlib.metadata.version("jupyterlab")
        command = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except (importlib.metadata.PackageNotFoundError, NoSuchKernel) as error:
        return Finding(Verdict.FIX, "Jupyter", f"{error}: pip install jupyterlab ipykernel")
    # A bare name is replaced by the Python that starts the kernel.
    if os.path.isabs(command) and not Path(command).samefile(sys.executable):
        return Finding(
            Verdict.FIX,
            "Jupyter",
            f"kernel 'python3' is {command}, another Python: run "
            f"{sys.executable} -m ipykernel install --sys-prefix",
        )
    return Finding(Verdict.OK, "Jupyter", f"JupyterLab {version}, kernel 'python3' is this Python")


def tiles() -> Finding:
    """The tiles of JupyterLab's launcher; all else works without them."""
    try:
        version = importlib.metadata.version("jupyter-app-launcher")
    except importlib.metadata.PackageNotFoundError:
        text = "the launcher has no tiles for chapters: pip install jupyter-app-launcher"
        return Finding(Verdict.NOTE, "Tiles", text)
    return Finding(Verdict.OK, "Tiles", f"jupyter-app-launcher {version}")


def mpiexec(mpi: MpiFlavour) -> Finding:
    """Which MPI starts the ranks."""
    return Finding(Verdict.OK, "MPI", f"{mpi}, {mpi.mpiexec}")


def library(mpi: MpiFlavour) -> Finding:
    """Whether mpi4py talks to the same MPI as mpiexec; if not, every rank thinks it is alone."""
    run = _run([sys.executable, "-c", LIBRARY])
    if run.returncode != 0:
        return Finding(
            Verdict.FIX,
            "mpi4py",
            f"does not load ({_last_line(run)}): pip install --force-reinstall mpi4py mpich",
        )
    name = " ".join(run.stdout.replace("Version:", "").split())
    if mpi.family != "unknown MPI" and mpi.family.split()[0] not in name:
        return Finding(
            Verdict.FIX,
            "mpi4py",
            f"loads {name}, but {mpi.mpiexec} is {mpi.family}: put that MPI's mpiexec beside "
            f"{sys.executable}, or pip install --force-reinstall mpi4py mpich",
        )
    return Finding(Verdict.OK, "mpi4py", f"loads {name}, the family of mpiexec")


def root(mpi: MpiFlavour) -> Finding:
    """Whether MPI may start here as this user, with more ranks than cores."""
    who = "root" if os.geteuid() == 0 else "not root"
    given = [*mpi.arguments(), *(f"{name}={value}" for name, value in mpi.environment.items())]
    flags = " ".join(given) or "no extra flags"
    return Finding(Verdict.OK, "Root, slots", f"you are {who}; mpiexec is given {flags}")


def all_reduce(mpi: MpiFlavour) -> Finding:
    """The proof: ranks that add up their numbers through MPI, on a laptop more than its cores."""
    count = available_cores()
    n = min(count, MOST_CORES_PROVED) + 1
    command = mpi.command(n, sys.executable, "-c", ALL_REDUCE)
    run = _run(command, **mpi.environment)
    if run.stdout.split() == ["ranks", str(n), "sum", str(n * (n + 1) // 2)]:
        return Finding(Verdict.OK, "All-reduce", f"{n} ranks on {count} core(s) agree on their sum")
    if "ranks 1 sum" in run.stdout:
        found = f"{n} processes started, each alone: mpi4py and mpiexec are not of the same MPI"
    else:
        found = f"failed ({_last_line(run)})"
    return Finding(Verdict.FIX, "All-reduce", f"{found}; try: {' '.join(command[:-2])} -m mpi4py")


def _run(command: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"no answer in {PROBE_TIMEOUT_S} s")
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))


def _last_line(run: subprocess.CompletedProcess[str]) -> str:
    lines = (run.stderr or run.stdout).strip().splitlines()
    return lines[-1].strip() if lines else f"exit status {run.returncode}"
