"""MPI ranks as engines: ``ipcluster start --profile-dir cluster_profiles/profile_mpi -n 4``."""

from tutorial_lib.cluster import mpi_flavour
from tutorial_lib.cluster.supervised import PYTHON

c = get_config()

mpi = mpi_flavour.detect()  # the mpiexec beside this interpreter, and the flags it needs

c.Cluster.engine_launcher_class = "mpi"
c.Cluster.delay = 0
c.LocalControllerLauncher.controller_cmd = [*PYTHON, "tutorial_lib.cluster.controller"]
c.MPILauncher.mpi_cmd = [mpi.mpiexec]
c.MPILauncher.mpi_args = mpi.arguments()
c.MPILauncher.environment = mpi.environment
c.MPIEngineSetLauncher.engine_cmd = [*PYTHON, "tutorial_lib.cluster.engine"]
