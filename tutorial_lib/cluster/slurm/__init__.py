"""Ranks as a job of SLURM."""
