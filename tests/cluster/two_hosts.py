"""Two hosts on one machine, joined by a cable: namespaces with all that makes a host.

Each has its own network with an address, name, processes, shared memory and folder for temporary
files, and an ssh server that knows one key. What they share is the file system with Python and this
package, at the same path, as the hosts of a cluster have it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from processes import command_line

PORT = 2222
STARTED_S = 20.0
SERVICES = ("sshd: /usr/sbin/sshd", "/usr/sbin/sshd -f", "unshare ", "sleep 1000")
NOWHERE = "02:00:00:00:00:01"  # nobody's hardware address: what is sent there is dropped
PROGRAMS = ("unshare", "nsenter", "setpriv", "ip", "ssh", "ssh-keygen", "/usr/sbin/sshd")
PRIVATE = [Path("/mnt"), Path("/media"), Path("/srv")]

# Makes the namespace a host. Everything here ends with its first process.
SETUP = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t sysfs sysfs /sys  # lists the interfaces of this network
mount -t tmpfs -o mode=755 tmpfs {own}
mkdir -p -m 755 /run/sshd
mkdir -m 700 {own}/tmp {own}/home {own}/etc
cp {given}/* {own}/etc/
chmod 600 {own}/etc/*
mount --bind {own}/etc/hosts /etc/hosts
if [ -e ~/.bashrc ]; then mount --bind /dev/null ~/.bashrc; fi  # ssh would have bash read it
hostname {name}
ip link set lo up
while ! ip link show {device} >/dev/null 2>&1; do sleep 0.02; done
ip addr add {address}/24 dev {device}
ip link set {device} up
/usr/sbin/sshd -f {own}/etc/sshd_config -E {own}/sshd.log
touch {given}/ready
while :; do sleep 1000 & wait $!; done  # and so bury orphans, as a host's first process does
"""
SSHD_CONFIG = """
Port {port}
ListenAddress {address}
HostKey {own}/etc/host_key
AuthorizedKeysFile {own}/etc/user_key.pub
PidFile {own}/sshd.pid
PasswordAuthentication no
PermitRootLogin yes
StrictModes no
UsePAM no
SetEnv TMPDIR={own}/tmp XDG_CACHE_HOME={own}/home/.cache
"""
SSH_CONFIG = """
Host *
  Port {port}
  IdentityFile {own}/etc/user_key
  UserKnownHostsFile {own}/etc/known_hosts
  GlobalKnownHostsFile /dev/null
"""


@dataclass(frozen=True)
class NamespaceHost:
    """One of the hosts.

    Attributes:
        name: Its name.
        address: Its address.
        device: Its network interface.
        pid: The first process in it.
        own: A folder that it shares with nobody, as it names it.
    """

    name: str
    address: str
    device: str
    pid: int
    own: Path

    def command(self, *command: str) -> list[str]:
        """A command line that runs another one in this host."""
        return ["nsenter", f"--target={self.pid}", *(f"--{n}" for n in KINDS), "--", *command]

    def environment(self) -> dict[str, str]:
        """The environment of a user of this host, who can ssh to both."""
        kept = ("PATH", "CI", "LANG", "OMP_NUM_THREADS")
        return {
            **{name: os.environ[name] for name in kept if name in os.environ},
            "HOME": f"{self.own}/home",
            "TMPDIR": f"{self.own}/tmp",
            "XDG_CACHE_HOME": f"{self.own}/home/.cache",
            "GAN_TUTORIAL_SSH": f"ssh -F {self.own}/etc/ssh_config",
        }

    def popen(self, *command: str, **env: str) -> subprocess.Popen[str]:
        """Start a command in this host."""
        return subprocess.Popen(
            self.command(*command),
            cwd="/",
            env={**self.environment(), **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str, timeout_s: float = 60, **env: str) -> str:
        """Run a command in this host, and return what it printed; it must succeed."""
        process = self.popen(*command, **env)
        try:
            said, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            said, _ = process.communicate()
            pytest.fail(f"{shlex.join(command)} still ran after {timeout_s} s\n{said}")
        assert process.returncode == 0, f"{shlex.join(command)}: {process.returncode}\n{said}"
        return said

    def path(self, path: Path | str) -> Path:
        """A file of this host, as others name it."""
        return Path(f"/proc/{self.pid}/root") / str(path).lstrip("/")

    def processes(self) -> list[psutil.Process]:
        """All that runs in it, but what runs for ever."""
        network = os.readlink(f"/proc/{self.pid}/ns/net")
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                is_here = os.readlink(f"/proc/{process.pid}/ns/net") == network
                is_alive = process.status() != psutil.STATUS_ZOMBIE
                is_service = process.pid == self.pid or line(process).startswith(SERVICES)
                if is_here and is_alive and not is_service:
                    found.append(process)
        return found

    def leftovers(self) -> list[str]:
        """What runs in it, and what lies in its folders for temporary files."""
        running = [f"{self.name}: {p.pid} {line(p)[:200]}" for p in self.processes()]
        bases = [self.path(self.own / "tmp"), self.path(self.own / "home/.cache")]
        # Path.glob fails where a folder vanishes under it; os.walk passes it over.
        found = [Path(folder) for base in bases for folder, *_ in os.walk(base)]
        left = [path.name for path in found if path.parent.name == "gan-tutorial"]
        return running + [f"{self.name}: {name}" for name in left]

    def kill(self, ending: str = "") -> None:
        """Kill all that runs in it and has a command line with such an ending."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if line(process).endswith(ending):
                    process.kill()


KINDS = ("net", "uts", "ipc", "mount", "pid")


@dataclass(frozen=True)
class TwoHosts:
    """Two hosts and the cable between them; the notebook is on the first.

    Attributes:
        first: Where things are started.
        second: The other one.
    """

    first: NamespaceHost
    second: NamespaceHost

    @property
    def both(self) -> tuple[NamespaceHost, NamespaceHost]:
        return self.first, self.second

    def hosts(self, each: int = 2) -> str:
        """Both, with as many slots each, as `--hosts` takes it."""
        return ",".join(f"{host.name}:{each}" for host in self.both)

    def cut(self, is_silent: bool = True) -> None:
        """Cut the network: packets vanish, or the cable is out, which its host can see."""
        for host, other in (self.both, self.both[::-1]):
            if is_silent:
                host.run(
                    *("ip", "neigh", "replace", other.address, "lladdr", NOWHERE),
                    *("dev", host.device, "nud", "permanent"),
                )
            else:
                host.run("ip", "link", "set", host.device, "down")

    def heal(self) -> None:
        """Join them again."""
        for host, other in (self.both, self.both[::-1]):
            host.run("ip", "link", "set", host.device, "up")
            forget = f"ip neigh del {other.address} dev {host.device} 2>/dev/null || true"
            host.run("sh", "-c", forget)

    def leftovers(self) -> list[str]:
        """What runs on them, and what they have not cleaned up."""
        return [text for host in self.both for text in host.leftovers()]


def line(process: psutil.Process) -> str:
    """A process's command line; "" when it has ended."""
    return " ".join(command_line(process))


def why_impossible() -> str:
    """Why there can't be such hosts here, or ""."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "namespaces for two hosts need Linux and root"
    if missing := [name for name in PROGRAMS if not shutil.which(name)]:
        return f"two hosts need {', '.join(missing)} (Debian: openssh-server, iproute2)"
    unshare = ["unshare", *(f"--{kind}" for kind in KINDS), "--fork", "--mount-proc", "true"]
    tried = subprocess.run(unshare, capture_output=True, text=True)
    return f"no namespaces: {tried.stderr.strip()}" if tried.returncode else ""


@contextlib.contextmanager
def two_hosts(folder: Path) -> Iterator[TwoHosts]:
    """Make two hosts, and unmake them whatever happens.

    Args:
        folder: An empty one, for their keys.
    """
    used = [Path(sys.prefix), Path(__file__), folder]
    own = next(p for p in PRIVATE if p.is_dir() and not any(u.is_relative_to(p) for u in used))
    names = {"node1": "10.77.0.1", "node2": "10.77.0.2"}
    devices = {name: f"gt{os.getpid()}{name[-1]}" for name in names}
    for key in ("host_key", "user_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True
        )
    started: list[subprocess.Popen[bytes]] = []
    try:
        one, other = devices.values()
        subprocess.run(
            ["ip", "link", "add", one, "type", "veth", "peer", "name", other], check=True
        )
        hosts = []
        for name, address in names.items():
            given = folder / name
            _write_files(given, folder, names, address, own)
            setup = SETUP.format(
                own=own, given=given, name=name, address=address, device=devices[name]
            )
            ends_with_us = ["setpriv", "--pdeathsig", "KILL"]
            unshare = ["unshare", *(f"--{kind}" for kind in KINDS), "--fork", "--kill-child"]
            process = subprocess.Popen([*ends_with_us, *unshare, "--mount-proc", "sh", "-c", setup])
            started.append(process)
            pid = _first_process(process)
            subprocess.run(["ip", "link", "set", devices[name], "netns", str(pid)], check=True)
            _wait(lambda ready=given / "ready": ready.exists(), f"{name} does not get ready")
            hosts.append(NamespaceHost(name, address, devices[name], pid, own))
        yield TwoHosts(*hosts)
    finally:
        for process in started:
            process.kill()  # its child is killed with it, and with that one all of the host
            process.wait()
        for device in devices.values():
            subprocess.run(["ip", "link", "del", device], capture_output=True)


def _write_files(given: Path, keys: Path, names: dict[str, str], address: str, own: Path) -> None:
    given.mkdir()
    for key in ("host_key", "user_key", "user_key.pub"):
        shutil.copy(keys / key, given / key)
    fields = {"port": PORT, "address": address, "own": own}
    lines = [f"{host_address} {name}" for name, host_address in names.items()]
    (given / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
    (given / "sshd_config").write_text(SSHD_CONFIG.format(**fields))
    (given / "ssh_config").write_text(SSH_CONFIG.format(**fields))
    public = (keys / "host_key.pub").read_text()
    known = [f"[{host}]:{PORT} {public}" for pair in names.items() for host in pair]
    (given / "known_hosts").write_text("".join(known))


def _first_process(unshare: subprocess.Popen[bytes]) -> int:
    parent = psutil.Process(unshare.pid)
    _wait(parent.children, "unshare starts nothing")
    return parent.children()[0].pid


def _wait(condition: Callable[[], object], failure: str) -> None:
    deadline = time.monotonic() + STARTED_S
    while not condition():
        assert time.monotonic() < deadline, failure
        time.sleep(0.02)
