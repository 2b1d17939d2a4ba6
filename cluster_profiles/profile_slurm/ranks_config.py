"""What a SLURM job is asked for. Fill in what your site wants; what is empty, SLURM chooses.

``gan-tutorial cluster start --profile slurm -n 4`` and ``ipcluster start --profile-dir
cluster_profiles/profile_slurm -n 4`` both read it.
"""

c = get_config()

c.Ranks.partition = ""  # such as "gpu": `sinfo` lists them
c.Ranks.account = ""  # who pays: `sacctmgr show associations user=$USER` lists yours
c.Ranks.nodes = ""  # such as 2, or "1-4"; the ranks (-n) are dealt out over them
c.Ranks.gpus = ""  # on each node, such as 4
c.Ranks.time = ""  # such as "1:00:00"; a job that takes longer is ended

c.Ranks.options = []  # more options of sbatch, such as ["--qos=debug", "--mem-per-cpu=4G"]
c.Ranks.queue_timeout_s = 600.0  # a job that waits for longer is withdrawn
c.Ranks.silence_s = 15.0  # a node that has been silent for so long is given up
c.Ranks.mpi = ""  # "pmi2" or "pmix" for srun, "mpiexec" to use that in the job; "" chooses

c.Ranks.launcher = "slurm"
