"""Two hosts: what holds for ranks on one, holds for ranks on two; and a network can be cut."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from two_hosts import NamespaceHost, TwoHosts, line, two_hosts, why_impossible

from tutorial_lib.cluster.remote.start_data import FILE_VARIABLE

pytestmark = [
    pytest.mark.engines,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(why_impossible()), reason=why_impossible() or "two hosts"),
]

MPIEXEC, LIBRARY = "/usr/bin/mpiexec.openmpi", "/usr/lib/x86_64-linux-gnu/libmpi.so.40"
GAN = str(Path(sys.executable).with_name("gan-tutorial"))
CHAPTER, MINIBATCHES, RANKS = "04_distributed_gan", 12, 4
SILENCE_S, START_S = 6.0, "180"
# Two processes that start together could choose two libraries, which round differently.
PINNED = {"GAN_TUTORIAL_MATRIX_PRODUCT": "mkl", "GAN_TUTORIAL_SILENCE_S": str(SILENCE_S)}
MARK = "> "
MPIS = ["MPICH", "Open MPI"]

WaitUntil = Callable[..., bool]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoHosts]:
    with two_hosts(tmp_path_factory.mktemp("hosts")) as made:
        yield made


@pytest.fixture
def hosts(both: TwoHosts, wait_until: WaitUntil) -> Iterator[TwoHosts]:
    """Two hosts, joined, with nothing on them before or after."""
    yield both
    both.heal()
    is_clean = wait_until(lambda: not both.leftovers(), 15)
    left = both.leftovers()
    for host in both.both:
        host.kill()
    assert is_clean, left


def flavour(mpi: str) -> dict[str, str]:
    """The variables that choose an MPI."""
    if mpi == "MPICH":
        return {}
    if not all(map(os.path.exists, (MPIEXEC, LIBRARY))):
        pytest.skip("there is no Open MPI (Debian: openmpi-bin)")
    return {"GAN_TUTORIAL_MPIEXEC": MPIEXEC, "MPI4PY_LIBMPI": LIBRARY}


def python(host: NamespaceHost, code: str, *arguments: str, **env: str) -> list[Any]:
    """Run a program on a host, and return what it printed as JSON, a line each."""
    said = host.run(sys.executable, "-c", code, *arguments, timeout_s=300, **PINNED, **env)
    return results(said)


def results(said: str) -> list[Any]:
    """What a program has printed as JSON, behind a mark."""
    marked = [line.removeprefix(MARK) for line in said.splitlines() if line.startswith(MARK)]
    return [json.loads(line) for line in marked]


LOSSES = f"""import json, sys
from tutorial_lib.cluster import Cluster
from tutorial_lib.training.basic_gan import GanConfig

def losses(config):
    from tutorial_lib.training.basic_gan import train_gan
    return [record.loss_average for record in train_gan(config, is_verbose=False).losses]

with Cluster({RANKS}, timeout_s={START_S}) as ranks:
    if "chapter" in sys.argv:
        print("> " + json.dumps(ranks.pull("losses")[0]))
    else:
        config = GanConfig(num_minibatches={MINIBATCHES}, minibatch_size=1024, seed=123)
        print("> " + json.dumps(ranks.run(losses, config)[0]))
    places = {{row.info.rank: [row.info.host, row.info.mpi] for row in ranks.status()}}
    print("> " + json.dumps(places))
"""


@pytest.fixture(scope="module")
def one_host_losses(both: TwoHosts) -> list[float]:
    """The losses of the chapter's training, by as many ranks on one host."""
    return python(both.first, LOSSES)[0]


def run_chapter(host: NamespaceHost, folder: str, minibatches: int, **env: str) -> Any:
    return host.popen(
        *(GAN, "run", "--chapters", "4", "--ranks", str(RANKS)),
        *("--minibatches", str(minibatches), "--output-dir", folder),
        **{**PINNED, **env},
    )


def start_cluster(hosts: TwoHosts, **env: str) -> str:
    command = (GAN, "cluster", "start", "--profile", "ssh", "-n", str(RANKS))
    where = ("--hosts", hosts.hosts(), "--timeout", START_S)
    return hosts.first.run(*command, *where, timeout_s=300, **{**PINNED, **env})


@pytest.mark.parametrize("mpi", MPIS)
def test_chapter_on_two_hosts_trains_as_on_one(
    hosts: TwoHosts, mpi: str, one_host_losses: list[float]
) -> None:
    env = flavour(mpi)
    assert f"{RANKS} of {RANKS} ranks, started by gan-tutorial, {mpi}" in start_cluster(
        hosts, **env
    )
    assert_no_key_on_a_command_line(hosts)
    folder = f"{hosts.first.own}/{mpi[:4]}"
    run = run_chapter(hosts.first, folder, MINIBATCHES)
    said, _ = run.communicate(timeout=400)
    assert run.returncode == 0, said
    losses, places = python(hosts.first, LOSSES, "chapter")
    assert [places[str(rank)][0] for rank in range(RANKS)] == ["node1"] * 2 + ["node2"] * 2
    assert all(name.startswith(mpi) for _, name in places.values())
    # A sum over two hosts adds in another order than one over a single host.
    assert losses == pytest.approx(one_host_losses, rel=1e-6, abs=1e-6)
    assert "stopped 1" in hosts.first.run(GAN, "cluster", "stop", "--profile", "ssh")


def assert_no_key_on_a_command_line(hosts: TwoHosts) -> None:
    launchers = [p for p in hosts.first.processes() if "mpiexec" in line(p).split(" ")[0]]
    file = hosts.first.path(launchers[0].environ()[FILE_VARIABLE])
    start = json.loads(file.read_text())
    secrets = [start["token"], start["connection"]["curve_serverkey"]]
    for process in [*hosts.first.processes(), *hosts.second.processes()]:
        assert not any(secret in line(process) for secret in secrets), process


@pytest.mark.parametrize("mpi", MPIS)
def test_network_cut_while_the_chapter_runs_ends_in_time_with_its_name(
    hosts: TwoHosts, mpi: str, wait_until: WaitUntil
) -> None:
    """By MPICH the network stays cut; by Open MPI it heals when all is over, or nearly so."""
    start_cluster(hosts, **flavour(mpi))
    folder = f"{hosts.first.own}/cut{mpi[:4]}"
    run = run_chapter(hosts.first, folder, 100_000)
    try:
        partial = hosts.first.path(f"{folder}/{CHAPTER}.partial.ipynb")
        assert wait_until(lambda: trains(partial), 240), "the training has not begun"
        time.sleep(2)
        hosts.cut(is_silent=mpi == "MPICH")
        began = time.monotonic()
        said, _ = run.communicate(timeout=240)
        took_s = time.monotonic() - began
    finally:
        run.kill()
        run.communicate()
    assert run.returncode == 1
    assert "DeadRankError: ranks 2, 3 on node2 can't be reached since " in said
    assert "the network between the hosts is cut, or node2 is down" in said
    assert took_s < SILENCE_S + 20, "the kernel's and papermill's own ends are in it"
    if mpi == "Open MPI":
        hosts.heal()
    assert wait_until(lambda: not hosts.leftovers(), 15), hosts.leftovers()


def trains(notebook: Path) -> bool:
    """Whether the cell is under way that trains."""
    try:
        cells = nbformat.read(notebook, as_version=4).cells
    except (OSError, ValueError):
        return False
    return any(
        cell.metadata.get("papermill", {}).get("status") == "running"
        and "source.next_minibatch" in cell.source
        for cell in cells
    )


LIFE = f"""import json, os, signal, sys, threading, time
from tutorial_lib.cluster import CellError, Cluster, DeadRankError

def say(value):
    print("> " + json.dumps(value), flush=True)

def error_of(source, after_s=None):
    timer = threading.Timer(after_s or 0, os.kill, (os.getpid(), signal.SIGINT))
    if after_s:
        timer.start()
    try:
        ranks.run(source)
    except BaseException as error:
        return [type(error).__name__, str(error)]
    finally:
        timer.cancel()

cluster = Cluster({RANKS}, hosts="node1:2,node2:2", timeout_s={START_S}, process_group=False,
                  hang_limit_s=1)
with cluster as ranks:
    ranks.run("import os, signal, socket, sys, time\\nfrom mpi4py import MPI\\n"
              "rank = MPI.COMM_WORLD.rank")
    ranks.run("print('from', socket.gethostname(), flush=True)")
    say(error_of("if rank == 3: 1 / 0"))
    say(error_of("time.sleep(60)", after_s=2))
    say([str(place) for place in ranks.where().values()])
    say(error_of("if rank == 2: os.kill(os.getpid(), signal.SIGKILL)\\ntime.sleep(60)"))
    ranks.restart()
    say(ranks.run("MPI.COMM_WORLD.allreduce(1)"))
    if "killed" in sys.argv:
        say("now")
        time.sleep(100)
"""


@pytest.mark.parametrize("mpi", MPIS)
def test_output_errors_interrupts_and_deaths_are_as_on_one_host(
    hosts: TwoHosts, mpi: str, wait_until: WaitUntil
) -> None:
    process = hosts.first.popen(
        sys.executable, "-c", LIFE, "killed", PYTHONUNBUFFERED="1", **PINNED, **flavour(mpi)
    )
    assert process.stdout is not None
    try:
        said: list[str] = []
        while not said or (said[-1] and said[-1] != f'{MARK}"now"\n'):
            said.append(process.stdout.readline())
    finally:
        hosts.first.kill(" killed")  # the notebook, as the system would
        process.kill()
        process.communicate()
    text = "".join(said)
    assert said[-1], text
    failed, interrupted, places, died, summed, _ = results(text)
    assert "from node1" in text
    assert "from node2" in text
    assert failed[0] == "CellError"
    assert failed[1].startswith("rank 3: ZeroDivisionError")
    assert interrupted[0] == "KeyboardInterrupt"
    assert places == ["has nothing to do: it has finished, or this cell is not for it"] * RANKS
    assert died[0] == "DeadRankError"
    assert died[1].startswith("rank 2 on node2 has died (SIGKILL: killed from outside")
    assert summed == {str(rank): RANKS for rank in range(RANKS)}
    assert wait_until(lambda: not hosts.leftovers(), 15), hosts.leftovers()


def test_host_that_cannot_be_used_is_named(hosts: TwoHosts) -> None:
    code = """import json, sys
from tutorial_lib.cluster import Cluster, HostsError
try:
    Cluster(4, hosts=sys.argv[1]).start()
except HostsError as error:
    print("> " + json.dumps(str(error)))
"""
    ssh = hosts.first.environment()["GAN_TUTORIAL_SSH"]
    strangers = {"GAN_TUTORIAL_SSH": f"{ssh} -o UserKnownHostsFile=/dev/null"}
    for named, env, expected in [
        ("node1:2,node2:2", strangers, "node2: ssh does not know its key: run `ssh node2`"),
        ("node1:2,10.77.0.9:2", {}, "10.77.0.9: it can't be reached"),
        ("node1:2,node9:2", {}, "host 'node9' has no IPv4 address here"),
    ]:
        (message,) = python(hosts.first, code, named, **env)
        assert expected in message


def test_stock_ipcluster_starts_engines_on_both_hosts(
    hosts: TwoHosts, tmp_path: Path, repository: Path
) -> None:
    for name in ("profile_ssh", "profile_mpi"):
        shutil.copytree(
            repository / "cluster_profiles" / name,
            tmp_path / name,
            ignore=lambda folder, names: [n for n in names if not n.endswith("_config.py")],
        )
    profile = tmp_path / "profile_ssh"
    (profile / "hosts").write_text("node1 slots=2\nnode2 slots=2\n")
    ipcluster = (sys.executable, "-m", "ipyparallel.cluster")
    where = f"--profile-dir={profile}"
    code = """import sys, json, ipyparallel
client = ipyparallel.Client(profile_dir=sys.argv[1], timeout=30)
client.wait_for_engines(4, timeout=120)
import socket
print("> " + json.dumps(sorted(client[:].apply_sync(socket.gethostname))))
"""
    try:
        start = (*ipcluster, "start", where, "-n", str(RANKS), "--daemonize")
        hosts.first.run(*start, timeout_s=200, **PINNED)
        (names,) = python(hosts.first, code, str(profile))
        assert names == ["node1"] * 2 + ["node2"] * 2
    finally:
        hosts.first.run(*ipcluster, "stop", where, timeout_s=60)
