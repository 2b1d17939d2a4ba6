"""Hosts are read, reached and checked."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tutorial_lib.cluster import Cluster, ClusterError, HostsError, MpiError, launch
from tutorial_lib.cluster.hosts import (
    Host,
    address_of,
    address_towards,
    addresses_towards,
    place_ranks,
    read_hostfile,
    read_hosts,
)
from tutorial_lib.cluster.mpi_flavour import MpiFlavour
from tutorial_lib.cluster.remote import (
    host_check,
    interfaces,
    remote_shell,
    ssh_launch,
    start_data,
)

TWO = [Host("node1", 2), Host("node2", 2)]


def test_both_ways_of_writing_hosts_are_read(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# ours\nnode1 slots=2\n\nnode2:2  # MPICH's way\n10.0.0.3\nnode1:1\n")
    assert read_hostfile(path) == [Host("node1", 3), Host("node2", 2), Host("10.0.0.3", 1)]
    assert read_hosts("node1:2, node2:2") == TWO
    assert read_hosts("node1") == [Host("node1", 1)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("node1 slots=two", r"hosts:2: 'two' is no number of slots"),
        ("node1:0", r"hosts:2: '0' is no number of slots"),
        ("node1 sluts=2", r"hosts:2: 'sluts' is not known here"),
        ("node1 node2", r"hosts:2: 'node1 node2' is no host: write `node1 slots=2`"),
        ("fe80::1", r"hosts:2: 'fe80::1' is no host"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(f"node0\n{line}\n")
    with pytest.raises(HostsError, match=said):
        read_hostfile(path)


def test_hosts_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(HostsError, match="nowhere: the host file can't be read"):
        read_hostfile(tmp_path / "nowhere")
    (tmp_path / "empty").write_text("# none\n")
    with pytest.raises(HostsError, match="empty: no host in it"):
        read_hostfile(tmp_path / "empty")
    with pytest.raises(HostsError, match="entry 2: '' is no host"):
        read_hosts("node1,")
    with pytest.raises(HostsError, match=r"host 'no-such-host\.invalid' has no IPv4 address here"):
        address_of("no-such-host.invalid")


def test_ranks_fill_hosts_in_order() -> None:
    assert place_ranks(TWO, 4) == TWO
    assert place_ranks(TWO, 3) == [Host("node1", 2), Host("node2", 1)]
    assert place_ranks(TWO, 2) == [Host("node1", 2)]
    with pytest.raises(HostsError, match="5 ranks asked for, but node1:2,node2:2 have 4 slots"):
        place_ranks(TWO, 5)


def test_the_address_is_the_one_that_the_route_takes() -> None:
    assert address_towards("127.0.0.1") == "127.0.0.1"
    assert addresses_towards(["localhost", "127.0.0.1"]) == ["127.0.0.1"]
    assert addresses_towards([]) == []


def test_loopback_leaves_the_choice_of_interfaces_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert interfaces.settings("127.0.0.1") == {}
    assert interfaces.subnet_of("10.0.3.7", "255.255.255.0") == "10.0.3.0/24"
    assert interfaces.subnet_here("127.0.0.1") == "127.0.0.0/8"
    chosen = {"UCX_NET_DEVICES": "b", "FI_TCP_IFACE": "b"}
    monkeypatch.setattr(interfaces, "settings", lambda address: chosen)
    with monkeypatch.context() as patch:
        patch.setattr(interfaces.os, "environ", {"UCX_NET_DEVICES": "the user's"})
        interfaces.choose("10.0.0.1")
        assert os.environ == {"UCX_NET_DEVICES": "the user's", "FI_TCP_IFACE": "b"}


def test_each_mpi_is_told_hosts_in_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv(start_data.START_VARIABLE, "secret")
    mpich = MpiFlavour("mpiexec", "MPICH", (5, 0, 2))
    arguments, environment = ssh_launch.over_ssh(mpich, TWO, ["127.0.0.1"])
    line = " ".join(arguments)
    assert f"-launcher ssh -launcher-exec {sys.executable} -hosts node1:2,node2:2" in line
    assert "OMP_NUM_THREADS" in arguments[arguments.index("-genvlist") + 1].split(",")
    assert environment == {"HYDRA_LAUNCHER_EXTRA_ARGS": f"-P -m {ssh_launch.SHELL_MODULE}"}
    for version in ((4, 1, 4), (5, 0, 11)):
        open_mpi = MpiFlavour("mpiexec", "Open MPI", version)
        arguments, environment = ssh_launch.over_ssh(open_mpi, TWO, ["127.0.0.1"])
        assert "-host node1:2,node2:2" in " ".join(arguments)
        assert "-x OMP_NUM_THREADS" in " ".join(arguments)
        assert environment["OMPI_MCA_oob_tcp_if_include"] == "127.0.0.0/8"
        assert environment["PRTE_MCA_plm_ssh_agent"] == environment["OMPI_MCA_plm_rsh_agent"]
        assert start_data.START_VARIABLE not in arguments
    with pytest.raises(MpiError, match="of an Intel MPI, and how it starts ranks on other hosts"):
        ssh_launch.over_ssh(MpiFlavour("mpiexec", "Intel MPI", ()), TWO, ["127.0.0.1"])


def test_profile_of_one_host_refuses_hosts_and_that_of_several_needs_some() -> None:
    with pytest.raises(HostsError, match="profile_mpi starts ranks on this host only"):
        Cluster(2, profile="mpi", hosts="node1:2").start()
    with pytest.raises(HostsError, match=r"no hosts: write them into .*/profile_ssh/hosts"):
        Cluster(2, profile="ssh").start()


def test_launcher_that_a_profile_makes_up_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "profile_folder", lambda name: tmp_path)
    (tmp_path / "ranks_config.py").write_text("c = get_config()\nc.Ranks.launcher = 'rocket'\n")
    with pytest.raises(ClusterError, match=r"ranks_config.py: no launcher 'rocket'; there are"):
        launch.plan_launch("mine", 2, ("program",))
    (tmp_path / "ranks_config.py").write_text("1 / 0\n")
    with pytest.raises(ClusterError, match=r"ranks_config.py fails: ZeroDivisionError"):
        launch.plan_launch("mine", 2, ("program",))


def test_command_line_of_ssh_is_taken_apart() -> None:
    assert remote_shell.split(["-x", "-l", "me", "node2", "a b", "c"]) == (
        ["-x", "-l", "me"],
        "node2",
        ["a b", "c"],
    )
    with pytest.raises(ValueError, match="no host in the arguments '-x'"):
        remote_shell.split(["-x"])


FAKE_SSH = """\
#!/bin/sh
for last; do :; done
exec sh -c "$last"
"""


def test_keys_reach_the_command_by_standard_input_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = program(tmp_path / "ssh", FAKE_SSH)
    secret = json.dumps({"token": "to'ken \\ $HOME"})
    environment = {**os.environ, "GAN_TUTORIAL_SSH": str(ssh), start_data.START_VARIABLE: secret}
    script = "import os,sys; print(os.environ['GAN_TUTORIAL_START'], sys.stdin.read() == '')"
    command = shlex.join([sys.executable, "-c", script])
    run = subprocess.run(
        [sys.executable, "-m", ssh_launch.SHELL_MODULE, "-x", "node2", command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.stdout == f"{secret} True\n", run.stderr
    monkeypatch.setenv(start_data.START_VARIABLE, secret)
    text, given = remote_shell.with_secrets("true")
    assert "to'ken" not in text
    assert given == f"{secret}\n"
    fields = {"cluster": "c", "ways": [["10.0.0.1", 7]], "token": "t", "silence_s": 9.0}
    monkeypatch.setenv(
        start_data.START_VARIABLE, json.dumps({**fields, "connection": {"key": "k"}})
    )
    taken = start_data.take()
    assert taken is not None
    assert taken.ways == [("10.0.0.1", 7)]
    assert taken.connection_by("10.0.0.1")["interface"] == "tcp://10.0.0.1"
    assert start_data.take() is None, "children do not inherit it"
    monkeypatch.setenv(start_data.START_VARIABLE, "")  # so that it is put back


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'Host key verification failed.' >&2; exit 255", "ssh does not know its key"),
        ("echo 'me@node2: Permission denied (publickey).' >&2; exit 255", "ssh-copy-id node2"),
        (
            "echo 'ssh: connect to host node2 port 22: Connection refused' >&2; exit 255",
            "start one",
        ),
        ("echo 'port 22: No route to host' >&2; exit 255", "it can't be reached"),
        ("echo 'something else' >&2; exit 255", "ssh fails: run `ssh node2` by hand"),
        ("echo 'sh: 1: /x/python: not found' >&2; exit 127", f"it has no {sys.executable}"),
        ("echo \"No module named 'tutorial_lib'\" >&2; exit 1", "has no tutorial_lib: install"),
        ("exit 3", "fails there with exit status 3"),
    ],
)
def test_host_that_can_take_no_ranks_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    ssh = program(tmp_path / "ssh", f"#!/bin/sh\n{script}\n")
    monkeypatch.setenv("GAN_TUTORIAL_SSH", str(ssh))
    with pytest.raises(HostsError) as caught:
        host_check.check(["node2"])
    assert str(caught.value).startswith("node2: ")
    assert said in str(caught.value)


def test_host_that_has_all_passes_and_a_missing_ssh_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAN_TUTORIAL_SSH", str(program(tmp_path / "ssh", FAKE_SSH)))
    host_check.check(["node2", "node3"])
    monkeypatch.setenv("GAN_TUTORIAL_SSH", str(tmp_path / "none"))
    with pytest.raises(HostsError, match="node2: ssh does not run here"):
        host_check.check(["node2"])


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path
