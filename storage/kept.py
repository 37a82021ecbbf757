"""Machine code that is kept on disk, for the process and the machine that it was made for.

    what it was made of ──hash──▶ folder/6f1c….kernel        magic │ SHA-256 of the rest │ the rest

Code from a file is run, so a file counts only if nobody else can have written it: it is a plain
file (no link) of this user's or of root's, in such a folder, and others may write to neither.  A
file that is cut, flipped or of another form is as good as none.  Files get their name when they are
whole, so processes may write the same one at the same time.

Folders, the first that can be used: what ``NUMBA_CACHE_DIR`` names, or else ``__pycache__`` beside
this file (root may warm up for all), the user's own cache.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

MAGIC = b"matwin kernel 1\n"
SUFFIX = ".kernel"
_SEAL = hashlib.sha256().digest_size
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def find(name: str) -> bytes | None:
    """What was kept under a name, if there is anything that may be trusted."""
    for folder in _folders():
        with suppress(OSError):
            data = _read(folder, name + SUFFIX)
            if data is not None:
                return data
    return None


def keep(name: str, data: bytes) -> bool:
    """Keep something under a name; False where there is no place for it."""
    sealed = MAGIC + hashlib.sha256(data).digest() + data
    return any(_written(folder, name + SUFFIX, sealed) for folder in _folders())


def _read(folder: Path, name: str) -> bytes | None:
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not _is_ours(os.fstat(directory)):
            return None
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    finally:
        os.close(directory)
    with os.fdopen(file, "rb") as opened:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode) or not _is_ours(about):
            return None
        return _unsealed(opened.read())


def _is_ours(about: os.stat_result) -> bool:
    return about.st_uid in (os.geteuid(), 0) and not about.st_mode & _OTHERS_MAY_WRITE


def _unsealed(sealed: bytes) -> bytes | None:
    start = len(MAGIC) + _SEAL
    data = sealed[start:]
    seal = sealed[len(MAGIC) : start]
    is_whole = sealed.startswith(MAGIC) and hashlib.sha256(data).digest() == seal
    return data if is_whole else None


def _written(folder: Path, name: str, data: bytes) -> bool:
    part = folder / f".{secrets.token_hex(8)}.part"
    try:
        folder.mkdir(0o755, parents=True, exist_ok=True)
        if not _is_ours(folder.stat()):
            return False
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            with os.fdopen(file, "wb") as opened:
                os.fchmod(file, 0o644)  # whatever the umask: others may read, nobody else write
                opened.write(data)
            part.replace(folder / name)
        except OSError:
            part.unlink(missing_ok=True)
            raise
    except OSError:
        return False
    return True


def _folders() -> Iterator[Path]:
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(named) / "matwin-kernels"
        return
    yield Path(__file__).parent / "__pycache__" / "kernels"
    own = os.environ.get("XDG_CACHE_HOME")
    home = os.environ.get("HOME")
    if own or (home and Path(home).is_dir()):  # nobody's home is made here
        yield Path(own or f"{home}/.cache", "matwin", "kernels")


@cache
def machine() -> str | None:
    """What compiled code depends on beside its source; None where that can't be told."""
    try:
        return repr((_processor(), _compiler(), sys.version, object.__basicsize__, _settings()))
    except OSError:
        return None


def _processor() -> list[str]:
    """Name and features of the first processor; all are alike."""
    told = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    keys = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")
    return [line for line in told if line.partition(":")[0].strip() in keys]


def _compiler() -> list[str]:
    """Numba's and llvmlite's versions, which importing them would take a quarter of a second."""
    specs = [find_spec(package) for package in ("numba", "llvmlite")]
    files = [Path(spec.origin) for spec in specs if spec and spec.origin]
    if len(files) < len(specs):
        raise OSError("no compiler")
    return [file.with_name("_version.py").read_text() for file in files]


def _settings() -> list[tuple[str, str]]:
    return sorted(
        (name, value)
        for name, value in os.environ.items()
        if name.startswith("NUMBA_") and name != "NUMBA_CACHE_DIR"
    )
