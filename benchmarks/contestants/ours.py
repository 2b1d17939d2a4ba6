"""This project: the script's own loop, on whatever starts it."""

from common import clock

from tutorial_lib.distributed import session
from tutorial_lib.training.basic_gan import BasicGan, GanConfig

with session.script() as ranks:
    gan = BasicGan(GanConfig(), is_verbose=False)
    clock(gan.step, ranks.rank, ranks.barrier)
