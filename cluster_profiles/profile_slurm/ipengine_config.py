"""The engines: each is one MPI rank of a job."""

from pathlib import Path

c = get_config()

load_subconfig(str(Path(__file__).parents[1] / "profile_ssh" / "ipengine_config.py"))
