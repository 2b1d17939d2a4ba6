"""The loop: trainers, progress, checkpoints and the scripts."""
