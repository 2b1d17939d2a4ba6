"""For ``ipcluster start --profile-dir cluster_profiles/profile_slurm -n 4``: MPI ranks in a job.

What the job is asked for is in ``ranks_config.py``.
"""

from pathlib import Path

from tutorial_lib.cluster.slurm import launch
from tutorial_lib.cluster.supervised import PYTHON

c = get_config()

c.Cluster.engine_launcher_class = "slurm"
c.Cluster.delay = 0
c.LocalControllerLauncher.controller_cmd = [*PYTHON, "tutorial_lib.cluster.controller"]
c.Cluster.send_engines_connection_env = True  # the key goes by the job's environment
c.SlurmEngineSetLauncher.engine_cmd = [*PYTHON, "tutorial_lib.cluster.engine"]
c.SlurmEngineSetLauncher.batch_template = launch.template(Path(__file__).parent)
