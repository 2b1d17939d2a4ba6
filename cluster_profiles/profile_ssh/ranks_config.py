"""Where the ranks of ``gan-tutorial cluster start --profile ssh -n 4`` run.

Write the hosts into a file ``hosts`` beside this one, a line ``node1 slots=2`` each; or name them:
``--hosts node1:2,node2:2``, in a notebook ``Cluster(n=4, hosts="node1:2,node2:2")``.
"""

import os

c = get_config()

c.Ranks.launcher = "ssh"
c.Ranks.hosts = "hosts"  # the host file, from this folder on

# A host that has been silent for so long is given up with its ranks, and ends them itself.
c.Ranks.silence_s = float(os.environ.get("GAN_TUTORIAL_SILENCE_S", 15.0))
