"""For ``ipcluster start --profile-dir cluster_profiles/profile_ssh -n 4``: MPI ranks over ssh.

The hosts are those of the file ``hosts`` beside this one.
"""

from pathlib import Path

from tutorial_lib.cluster import mpi_flavour
from tutorial_lib.cluster.remote import ssh_launch
from tutorial_lib.cluster.supervised import PYTHON

c = get_config()

mpi = mpi_flavour.detect()  # the mpiexec beside this interpreter
arguments, environment = ssh_launch.for_ipcluster(mpi, Path(__file__).parent)

c.Cluster.engine_launcher_class = "mpi"
c.Cluster.delay = 0
c.LocalControllerLauncher.controller_cmd = [*PYTHON, "tutorial_lib.cluster.controller"]
c.Cluster.send_engines_connection_env = True  # the key goes by ssh, not by a file
c.MPILauncher.mpi_cmd = [mpi.mpiexec]
c.MPILauncher.mpi_args = arguments
c.MPILauncher.environment = environment
c.MPIEngineSetLauncher.engine_cmd = [*PYTHON, "tutorial_lib.cluster.engine"]
