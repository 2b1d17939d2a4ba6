"""The controller: it carries messages between notebooks and engines."""

from pathlib import Path

from tutorial_lib.cluster.remote import ssh_launch

c = get_config()

load_subconfig(str(Path(__file__).parents[1] / "profile_mpi" / "ipcontroller_config.py"))

# Notebooks are on this host; engines reach it by the address that packets to their hosts carry.
c.IPController.client_ip = "127.0.0.1"
c.IPController.engine_ip = c.IPController.location = ssh_launch.address(Path(__file__).parent)

# What engines and controller say to each other crosses a network: encrypt it.
c.IPController.enable_curve = True
