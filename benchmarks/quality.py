"""How far the GAN's samples are from real digits.

What docs/quality.md says is measured by this.

python benchmarks/quality.py                            300 minibatches: 20 s of one core, and 30 s
python benchmarks/quality.py --minibatches 300 10000    11 minutes more

A generator that is there already, under --out, is not trained again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from measuring import print_table

from tutorial_lib.data.datasets import mnist
from tutorial_lib.display.grid import sample_grid
from tutorial_lib.distributed import session
from tutorial_lib.models.gan import Generator
from tutorial_lib.training.basic_gan import GanConfig, GanResult, train_gan
from tutorial_lib.training.checkpoint import load_generator, save_generator
from tutorial_lib.training.digit_features import accuracy, load_digit_features, scale_images
from tutorial_lib.training.quality import NUM_IMAGES, frechet_distance, real_images
from tutorial_lib.training.samples import draw_samples


def train(marks: list[int], out: Path) -> None:
    """Train once, up to the last of some numbers of minibatches, and keep each generator."""

    def keep(number: int, result: GanResult) -> None:
        if number in marks:
            facts = {"minibatches": number, "seed": GanConfig.seed}
            save_generator(out / f"{number}.pt", result.generator, **facts)

    if any(not (out / f"{mark}.pt").exists() for mark in marks):
        train_gan(GanConfig(num_minibatches=max(marks)), keep, is_verbose=False)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minibatches", type=int, nargs="+", default=[300], metavar="N")
    parser.add_argument("--out", type=Path, default=Path("outputs/quality"))
    options = parser.parse_args()
    session.start(threads=1)
    marks = sorted(options.minibatches)
    train(marks, options.out)
    real, test = real_images(), mnist().test
    sets = {
        "real: other training images": real_images("second"),
        "real: the test images": scale_images(test.images),
        "generator, untrained": draw_samples(Generator(GanConfig.seed), NUM_IMAGES),
    }
    for mark in marks:
        generator, _ = load_generator(options.out / f"{mark}.pt")
        sets[f"generator after {mark:,} minibatches"] = draw_samples(generator, NUM_IMAGES)
        sample_grid(draw_samples(generator)).save(options.out / f"{mark}.png")
    sets["black images"] = torch.full((NUM_IMAGES, 28, 28), -1.0)
    rows = [[name, f"{frechet_distance(images, real):.2f}"] for name, images in sets.items()]
    print_table([f"{NUM_IMAGES:,} images", "distance"], rows)
    print(f"\nThe classifier's test accuracy is {accuracy(load_digit_features(), test):.2%}.")


if __name__ == "__main__":
    main()
