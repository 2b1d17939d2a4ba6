"""Ranks on this host that want GPUs: one rank per GPU, which talk by NCCL.

NCCL takes one rank per GPU. With more ranks than GPUs, ranks share them, and talk by MPI through
the host's memory; without GPUs they compute on CPUs. A notebook says so when it starts them.
"""

c = get_config()

c.Ranks.launcher = "mpiexec"
c.Ranks.device = "gpu"  # "auto" takes GPUs only if each rank has one of its own, "cpu" none
