"""CNTK's own random streams: what repeats one of its runs, sample by sample.

=========================  ====================================================================
``MersenneTwister64``      the generator behind all of them but the noise
``cntk_xavier_uniform_``   initial weights; each tensor begins the same stream afresh
``CntkReader``             order of samples, dealt to workers by chunks of text
``CntkNoise``              the example's noise, the same on every worker
=========================  ====================================================================

``python -m tutorial_lib.training.basic_gan --replay-cntk`` trains on them;
``python -m tutorial_lib.compat.check`` compares recorded runs with ours.
"""

from tutorial_lib.data.cntk_reader import CntkReader
from tutorial_lib.data.mersenne import MersenneTwister64
from tutorial_lib.data.noise import CntkNoise
from tutorial_lib.models.init import cntk_xavier_uniform_

__all__ = ["CntkNoise", "CntkReader", "MersenneTwister64", "cntk_xavier_uniform_"]
