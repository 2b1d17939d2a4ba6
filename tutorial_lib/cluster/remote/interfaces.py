"""Tells MPI, gloo and NCCL which network to use: the one that leads to the cluster's other hosts.

Left alone, each takes an interface by its own rule, often the first, and hosts have interfaces that
lead nowhere. The names of interfaces differ from host to host, so each rank looks for its own.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path

import psutil

from tutorial_lib.cluster.hosts import is_loopback

ADDRESS_VARIABLE = "GAN_TUTORIAL_ADDRESS"  # as in distributed.rendezvous
INFINIBAND = Path("/sys/class/infiniband")


def choose(address: str) -> None:
    """Set what is not set yet, in this process; to be called before MPI starts.

    Args:
        address: Of this host, the one that the other hosts reach.
    """
    for name, value in settings(address).items():
        os.environ.setdefault(name, value)


def settings(address: str) -> dict[str, str]:
    """The environment variables that name the network of an address.

    Args:
        address: Of this host; from the loopback interface nothing follows.
    """
    if is_loopback(address):
        return {}
    chosen = {ADDRESS_VARIABLE: address}
    for name, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if entry.address == address:
                chosen |= {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": name}
                chosen["FI_TCP_IFACE"] = name  # libfabric, of MPICH and Intel MPI
                if not has_infiniband():
                    chosen["UCX_NET_DEVICES"] = name
                if entry.netmask:
                    subnet = subnet_of(address, entry.netmask)
                    chosen["OMPI_MCA_btl_tcp_if_include"] = subnet
    return chosen


def subnet_of(address: str, netmask: str) -> str:
    """The network of an address, as Open MPI names it: "10.0.0.0/24".

    Args:
        address: The address.
        netmask: Of its interface, for example "255.255.255.0".
    """
    return str(ipaddress.ip_interface(f"{address}/{netmask}").network)


def subnet_here(address: str) -> str:
    """The network of an address of this host; the address alone when its interface is unknown.

    Args:
        address: The address.
    """
    for entries in psutil.net_if_addrs().values():
        for entry in entries:
            if entry.address == address and entry.netmask:
                return subnet_of(address, entry.netmask)
    return f"{address}/32"


def has_infiniband() -> bool:
    """Whether this host has faster devices than the interface, which MPI then finds by itself."""
    return INFINIBAND.is_dir() and any(INFINIBAND.iterdir())
