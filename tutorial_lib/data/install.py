"""MNIST as files, for other programs: what CNTK's install_mnist.py did."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from tutorial_lib.data.atomic import atomic_write
from tutorial_lib.data.ctf import write_ctf
from tutorial_lib.data.datasets import BUNDLED_MNIST, MNIST_SHA256, mnist
from tutorial_lib.data.errors import DataError
from tutorial_lib.data.files import has_sha256, read_bytes
from tutorial_lib.data.folder import CTF_NAMES

Format = Literal["ctf", "idx"]

CTF_SHA256 = {
    CTF_NAMES[0]: "1fe3f142b2c57adcc0af07cfa8c3a8e9cd715454cbcf1bf1253f7e91e59b5c99",
    CTF_NAMES[1]: "8c73d178916570468976394c028443fd6b06ddaa85175c4560a7f9daf00e329e",
}


def install(
    format: Format, out_dir: str | os.PathLike[str], report: Callable[[str], object] = print
) -> list[Path]:
    """Write MNIST into a folder. Files that are there and intact are left alone.

    Args:
        format: ``"ctf"`` for CNTK's two text files, ``"idx"`` for the four original ones,
            uncompressed.
        out_dir: the folder; made if it is missing.
        report: is told about each file: ``"Saving …"``, ``"File already exists …"`` or, where
            another content is under its name, ``"Replacing …"``.

    Returns:
        The files.

    Raises:
        ValueError: another format; take one of the two.
        DataError: the folder cannot be written; choose another one.

    **Distributed:** not collective; run it on one rank.

    **Source:** ``Examples/Image/DataSets/MNIST/install_mnist.py`` and notebook 103A of CNTK.
    """
    if format not in get_args(Format):
        raise ValueError(f"format is one of {', '.join(get_args(Format))}, got {format!r}")
    folder = Path(out_dir).expanduser()
    sums = CTF_SHA256 if format == "ctf" else MNIST_SHA256
    try:
        for name, sha256 in sums.items():
            path = folder / name
            if has_sha256(path, sha256):
                report(f"File already exists {path}")
            else:
                report(f"{'Replacing' if path.exists() else 'Saving'} {path}")
                _write(path)
    except OSError as error:
        remedy = "Choose another folder with --out, or allow writing to this one"
        raise DataError(folder, "a folder to write to", f"'{error.strerror}'", remedy) from error
    return [folder / name for name in sums]


def _write(path: Path) -> None:
    if path.name in CTF_NAMES:
        dataset = mnist()
        split = dataset.train if path.name == CTF_NAMES[0] else dataset.test
        write_ctf(path, split.features.numpy(), split.labels.numpy())
    else:
        with atomic_write(path) as file:
            file.write(read_bytes(BUNDLED_MNIST / f"{path.name}.gz"))
