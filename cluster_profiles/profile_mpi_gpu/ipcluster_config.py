"""For ``ipcluster start --profile-dir cluster_profiles/profile_mpi_gpu -n 4``: ranks on GPUs."""

from pathlib import Path

from tutorial_lib.cluster.launch import settings_of
from tutorial_lib.distributed.gpu_placement import DEVICE_VARIABLE

c = get_config()

load_subconfig(str(Path(__file__).parents[1] / "profile_mpi" / "ipcluster_config.py"))

device = settings_of(Path(__file__).parent)["device"]
c.MPILauncher.environment = {**c.MPILauncher.environment, DEVICE_VARIABLE: device}
