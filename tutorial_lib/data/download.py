"""Files from the internet: once for all ranks, resumed, and checked."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import filelock
import requests
import tqdm

from tutorial_lib.data.errors import DataError
from tutorial_lib.data.files import has_sha256

CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 30
LOCK_TIMEOUT_S = 1800
ATTEMPTS_PER_MIRROR = 5
CHUNK_BYTES = 1 << 14  # so much at most is lost of a transfer that breaks off


def cache_dir() -> Path:
    """Return the folder for downloads, by the platform's convention; it need not exist.

    ``$XDG_CACHE_HOME/gan-tutorial`` where that variable is set, else
    ``~/Library/Caches/gan-tutorial`` on macOS and ``~/.cache/gan-tutorial`` elsewhere.
    """
    configured = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(configured):  # the convention says to ignore a relative one
        return Path(configured) / "gan-tutorial"
    home = Path.home()
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "gan-tutorial"


def fetch(sha256: Mapping[str, str], mirrors: Sequence[str], folder: Path) -> None:
    """Download files into a folder, except those that are there and intact.

    The first mirror that delivers the right bytes is enough. What a broken transfer leaves behind
    is continued by the next attempt, at the next mirror, or in the next run. A file appears under
    its name only when it is whole.

    Args:
        sha256: checksums of the files by their names, which are the same at all mirrors.
        mirrors: addresses of folders, the preferred one first.
        folder: made if it is missing.

    Raises:
        DataError: no mirror delivered a file, as on a machine without internet; the message tells
            how to put it there by hand. Or the folder cannot be written; choose another one.

    **Distributed:** not collective, and safe to call on all ranks, nodes and in other programs at
    once: one of them downloads under a lock, the others wait for it.
    """
    lock = folder / ".lock"
    try:
        if all(has_sha256(folder / name, digest) for name, digest in sha256.items()):
            return
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(lock, timeout=LOCK_TIMEOUT_S):
            for name, digest in sha256.items():
                if not has_sha256(folder / name, digest):  # another process may have been faster
                    _download(folder / name, digest, mirrors, by_hand(sha256, mirrors, folder))
    except filelock.Timeout as error:
        remedy = f"If no other download is running, remove {lock} and run again"
        found = f"another process holding it for {LOCK_TIMEOUT_S} s"
        raise DataError(lock, "a free lock", found, remedy) from error
    except OSError as error:
        remedy = "Free or allow it, or set XDG_CACHE_HOME to a folder that you may write"
        found = f"'{error.strerror}'"
        raise DataError(folder, "a folder to download into", found, remedy) from error


def by_hand(names: Iterable[str], mirrors: Sequence[str], folder: Path) -> str:
    """Return the steps that get files without this program, for the end of an error.

    Args:
        names: the files.
        mirrors: addresses that they are at.
        folder: where they belong.
    """
    addresses = "\n".join(f"     {mirrors[0]}/{name}" for name in names)
    return (
        "Run again where there is internet; or, by hand:\n"
        f"  1. on a machine with internet, download\n{addresses}\n"
        f"  2. put the files into {folder} (or pass another folder with them as data_dir)\n"
        "  3. run again"
    )


def _download(path: Path, sha256: str, mirrors: Sequence[str], remedy: str) -> None:
    part = path.with_name(f"{path.name}.part")
    problems = []
    for mirror in mirrors:
        url = f"{mirror}/{path.name}"
        try:
            if _is_delivered(url, part, sha256):
                os.replace(part, path)
                return
            problems.append(f"{url}: wrong checksum")
        except requests.RequestException as error:
            problems.append(f"{url}: {_reason(error)}")
    found = f"({'; '.join(problems)})"
    raise DataError(path, f"a download with SHA-256 {sha256}", f"none {found}", remedy)


def _is_delivered(url: str, part: Path, sha256: str) -> bool:
    """Transfer the file and check it. A wrong beginning from before gets one more try without."""
    for _ in range(2 if part.exists() else 1):
        _transfer(url, part)
        if has_sha256(part, sha256):
            return True
        part.unlink()
    return False


def _transfer(url: str, part: Path) -> None:
    """Bring ``part`` up to the file's length, in several attempts while each gets further."""
    for attempt in range(1, ATTEMPTS_PER_MIRROR + 1):
        size = _size(part)
        try:
            _receive(url, part)
            break
        except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
            if attempt == ATTEMPTS_PER_MIRROR or _size(part) <= size:
                raise


def _receive(url: str, part: Path) -> None:
    have = _size(part)
    headers = {"Accept-Encoding": "identity"}  # the bytes as they are, and so their number
    if have:
        headers["Range"] = f"bytes={have}-"
    timeouts_s = (CONNECT_TIMEOUT_S, READ_TIMEOUT_S)
    with requests.get(url, headers=headers, stream=True, timeout=timeouts_s) as response:
        if have and response.status_code == requests.codes.range_not_satisfiable:
            return  # nothing follows what is there; the checksum will tell
        response.raise_for_status()
        is_rest = have > 0 and response.status_code == requests.codes.partial_content
        length = response.headers.get("Content-Length")
        start = have if is_rest else 0
        total = start + int(length) if length else None
        bar = tqdm.tqdm(
            desc=part.stem,
            initial=start,
            total=total,
            unit="B",
            unit_scale=True,
            unit_divisor=1024,
            mininterval=0.5,
        )
        with bar, open(part, "ab" if is_rest else "wb") as file:
            for chunk in response.iter_content(CHUNK_BYTES):
                file.write(chunk)
                bar.update(len(chunk))
            file.flush()
            os.fsync(file.fileno())
    if total is not None and _size(part) < total:
        raise requests.exceptions.ChunkedEncodingError(f"{_size(part)} of {total} bytes came")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"HTTP status {error.response.status_code}"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the transfer broke off"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return str(error)
