"""The data sets: which are here and intact, and how to get the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

from tutorial_lib.data.cifar import cifar10, cifar10_sample
from tutorial_lib.data.datasets import Dataset, fashion_mnist, mnist
from tutorial_lib.data.download import cache_dir
from tutorial_lib.data.errors import DataError

Name = Literal["fashion-mnist", "cifar-10"]
BUNDLED: dict[str, Callable[[], Dataset]] = {
    "mnist": mnist,
    "cifar-10 sample": cifar10_sample,
}
# What each needs, in megabytes, and how it is fetched and read.
DOWNLOADED: dict[Name, tuple[int, Callable[[], Dataset]]] = {
    "fashion-mnist": (30, fashion_mnist),
    "cifar-10": (170, partial(cifar10, download=True)),
}


def list_data() -> Iterator[str]:
    """Yield a line for each data set: its size, or how to get it.

    What the package brings along is read, and its checksums compared.

    Raises:
        DataError: a file of the package is damaged; install the package again.
    """
    for name, read in BUNDLED.items():
        yield f"{name:16} {_size(read())}; in the package, intact"
    for title, (megabytes, _) in DOWNLOADED.items():
        folder = cache_dir() / title
        try:
            is_here = any(path.name[0] != "." for path in folder.iterdir())
        except OSError:
            is_here = False
        if is_here:
            yield f"{title:16} in {folder}; `gan-tutorial data download {title}` verifies it"
        else:
            yield f"{title:16} not here; `gan-tutorial data download {title}` ({megabytes} MB)"


def download(name: Name) -> str:
    """Fetch a data set into the cache, unless it is there, and read it once.

    Args:
        name: which.

    Returns:
        A line that tells what is there now.

    Raises:
        DataError: it cannot be had, or is damaged; the message tells what to do.
    """
    _, read = DOWNLOADED[name]
    return f"{name}: {_size(read())}; in {cache_dir() / name}"


def verify(folder: Path) -> str:
    """Read a folder of one's own with MNIST or CIFAR-10, as a chapter would.

    Args:
        folder: what is to become ``data_dir``.

    Returns:
        A line that tells what is in it.

    Raises:
        DataError: it is neither, or damaged; the message is about what the folder comes nearest.
    """
    try:
        data = mnist(folder)
    except DataError as error:
        if error.path != Path(folder).expanduser():
            raise  # some of MNIST is there
        try:
            data = cifar10(folder)
        except DataError as other:
            raise (error if other.path == error.path else other) from None
    return f"{folder}: {data.name}, {_size(data)}"


def _size(data: Dataset) -> str:
    return f"{len(data.train):,} training and {len(data.test):,} test pictures"
