"""As for ranks without GPUs."""

from pathlib import Path

c = get_config()

load_subconfig(str(Path(__file__).parents[1] / "profile_mpi" / "ipcontroller_config.py"))
