"""This project in a notebook: the same loop in cells on ipyparallel's engines."""

import argparse
import json

from common import WARM_UP_STEPS, number_of_steps

from tutorial_lib.cluster import Cluster

SET_UP = f"""
from tutorial_lib.training.basic_gan import BasicGan, GanConfig
gan = BasicGan(GanConfig(), is_verbose=False)
for _ in range({WARM_UP_STEPS}):
    gan.step()
"""

CELL = f"""
import time
from tutorial_lib.distributed import session
session.current().barrier()
start_s = time.perf_counter()
for _ in range({number_of_steps()}):
    gan.step()
session.current().barrier()
{number_of_steps()} / (time.perf_counter() - start_s)
"""

parser = argparse.ArgumentParser()
parser.add_argument("--ranks", type=int, default=2)
n = parser.parse_known_args()[0].ranks
with Cluster(n, attach=False) as ranks:
    ranks.run(SET_UP)
    rate = ranks.run(CELL)[0]
print(json.dumps({"steps_per_s": rate}), flush=True)
