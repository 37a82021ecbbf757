"""Where files are: on this machine, in an object store, or on standard input.

    "day*.csv", "folder/"              ─▶ glob, walk      ─▶ Place(local)
    "s3://bucket/day*.csv?region=…"    ─▶ Arrow's systems ─▶ Place(system, inner)
    "-"                                ─▶ put down        ─▶ Place(local) without a name

A folder means all files below it whose suffix is known; names that start with a dot or an
underscore are other programs' notes.  Folders `key=value` between it and a file are columns of the
file's rows.

Invariants: a place is opened as often as asked; its `path` is for messages and holds no password.
"""

from __future__ import annotations

import glob
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from matwin.storage.errors import InputError, StoreError

from .ipc_layout import ReadAt
from .reading import first_line
from .spill import read_at

STDIN = "-"
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")

_PACKED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}

Hive = tuple[tuple[str, str | None], ...]
"""Columns that the folders above a file tell, as text."""


@dataclass(frozen=True)
class Place:
    """A file that can be opened."""

    path: str
    """How messages call it."""
    local: str | None = None
    """Its path on this machine; None: `system` has it."""
    system: Any = None
    inner: str = ""
    hive: Hive = ()
    compression: str | None = "detect"
    """How the file is packed; by its name unless it has none."""
    held: Any = None
    """An open file that has no other name."""

    @contextmanager
    def bytes(self) -> Iterator[ReadAt]:
        """A function that reads bytes anywhere in the file."""
        if self.local is not None:
            with Path(self.local).open("rb") as raw:
                yield partial(read_at, raw.fileno())
        else:
            with self.system.open_input_file(self.inner) as file:
                yield lambda place, count: file.read_at(count, place)

    def size(self) -> int:
        """How many bytes it has now."""
        if self.local is not None:
            return Path(self.local).stat().st_size
        return int(self.system.get_file_info(self.inner).size or 0)

    def file(self) -> Any:
        """The file for Arrow, to be read anywhere."""
        if self.local is not None:
            return pa.OSFile(self.local)
        return self.system.open_input_file(self.inner)

    def text(self) -> Any:
        """The file for Arrow, from its beginning, unpacked if its name says that it is packed."""
        if self.local is not None:
            return pa.input_stream(self.local, compression=self.compression)
        return self.system.open_input_stream(self.inner, compression=self.compression)

    def lines(self) -> io.BufferedReader:
        """The same for Python."""
        return io.BufferedReader(self.text(), 2**16)


def is_uri(path: str) -> bool:
    """Whether a path names an object store or another of Arrow's file systems.

    >>> is_uri("s3://bucket/day.csv"), is_uri("day.csv")
    (True, False)
    """
    return _URI.match(path) is not None


def places(pattern: str, name: str, is_known: Callable[[str], bool]) -> list[Place]:
    """The files that a path, folder or pattern means; in folders, those with a known name."""
    if pattern == STDIN:
        return [_stdin(name)]
    if is_uri(pattern):
        return _remote_places(pattern, name, is_known)
    found: list[Place] = []
    for path in _paths(pattern, name):
        found += _below(path, name, is_known) if is_folder(path) else [Place(path, path)]
    return found


def is_folder(path: str | Path) -> bool:
    """Whether a folder is there; what can't be asked is none, and whoever opens it says why."""
    try:
        return Path(path).is_dir()
    except (OSError, ValueError):
        return False


# ── this machine ─────────────────────────────────────────────────────────────────────────────


def _paths(pattern: str, name: str) -> list[str]:
    """What a path or pattern means; a file whose name looks like a pattern is itself."""
    try:
        path = str(Path(pattern).expanduser())
        if os.path.lexists(path) or not glob.has_magic(path):
            Path(path).is_dir()  # raises where it can't be a path at all
            return [path]
        found = sorted(glob.glob(path, recursive=True))  # noqa: PTH207  (pathlib's is relative)
    except (OSError, ValueError, RuntimeError) as e:
        raise InputError(f"{name}: {pattern!r} is no path: {e}") from e
    files = [path for path in found if not is_folder(path)]
    if not files:
        raise InputError(f"{name}: no file matches {pattern!r}")
    return files


def _below(folder: str, name: str, is_known: Callable[[str], bool]) -> list[Place]:
    def failed(error: OSError) -> None:
        raise InputError(f"{name}: folder {folder!r} can't be listed: {error}") from error

    paths = [
        os.path.join(above, file)  # noqa: PTH118  (as bytes that are no UTF-8 survive it)
        for above, _, files in os.walk(folder, onerror=failed)
        for file in files
    ]
    chosen = _chosen(paths, folder, name, is_known)
    return [Place(path, path, hive=_hive(path, folder)) for path in chosen]


def _chosen(paths: list[str], folder: str, name: str, is_known: Callable[[str], bool]) -> list[str]:
    """The data files of a folder, in order."""
    found = sorted(
        path
        for path in paths
        if is_known(path) and not any(part[0] in "._" for part in _parts(path, folder))
    )
    if not found:
        raise InputError(
            f"{name}: folder {folder!r} has no file of a known format; name its files, or give "
            "them a suffix such as .parquet"
        )
    return found


def _parts(path: str, folder: str) -> list[str]:
    return [part for part in path[len(folder) :].split("/") if part]


def _hive(path: str, folder: str) -> Hive:
    """The columns that folders between `folder` and a file tell.

    >>> _hive("data/year=2024/city=S%C3%A3o/x.csv", "data")
    (('year', '2024'), ('city', 'São'))
    """
    pairs = [part.partition("=") for part in _parts(path, folder)[:-1]]
    return tuple(
        (unquote(key), None if value == HIVE_NULL else unquote(value))
        for key, equals, value in pairs
        if key and equals
    )


# ── object stores ────────────────────────────────────────────────────────────────────────────


def system_of(uri: str, name: str) -> tuple[Any, str]:
    """The file system that a URI names, and the path in it."""
    from pyarrow.fs import FileSystem  # here: few need it

    try:
        return FileSystem.from_uri(uri)  # type: ignore[no-any-return]
    except (pa.ArrowException, OSError, ValueError, TypeError, ImportError) as e:
        if uri.startswith(("http://", "https://")):
            raise InputError(
                f"{name}: {shown(uri)!r} is on the web, which is not read from; download it first, "
                "or on the command line: curl URL | matwin join - …"
            ) from e
        raise InputError(
            f"{name}: {shown(uri)!r} is in no file system that Arrow can open: {first_line(e)}"
        ) from e


def shown(uri: str) -> str:
    """A URI for messages, without passwords and options.

    >>> shown("s3://key:secret@bucket/a.csv?region=eu-west-1")
    's3://bucket/a.csv'
    """
    scheme, _, rest = uri.partition("?")[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def is_below(uri: str, pattern: str) -> bool:
    """Whether an object is the one that a URI means, or one of those.

    >>> is_below("s3://b/day/x.csv?region=eu", "s3://b/day"), is_below("s3://b/x.csv", "s3://b/y*")
    (True, False)
    """
    parts, wanted = shown(uri).split("/"), shown(pattern).rstrip("/").split("/")
    return _fits(parts, wanted) or _fits(parts, [*wanted, "**"])


def _remote_places(uri: str, name: str, is_known: Callable[[str], bool]) -> list[Place]:
    address, mark, query = uri.partition("?")
    parts = address.split("/")
    magic = next((at for at, part in enumerate(parts) if at > 2 and glob.has_magic(part)), None)
    base = "/".join(parts[:magic])
    system, root = system_of(base + mark + query, name)
    if urlsplit(uri).scheme == "file":
        return places("/".join([root, *parts[magic:]] if magic else [root]), name, is_known)
    head = shown(base)
    with _asking(uri, name):
        if magic is None and not _is_folder(system, root):
            return [Place(head, None, system, root)]
        paths = _listed(system, root)
    if magic is None:
        paths = _chosen(paths, root, name, is_known)
    else:
        wanted = parts[magic:]
        paths = sorted(path for path in paths if _fits(_parts(path, root), wanted))
        if not paths:
            raise InputError(f"{name}: no file matches {shown(uri)!r}")
    above = len(root.rstrip("/"))
    return [
        Place(
            head.rstrip("/") + path[above:], None, system, path,
            hive=_hive(path, root) if magic is None else (),
        )
        for path in paths
    ]  # fmt: skip


@contextmanager
def _asking(uri: str, name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as e:
        raise InputError(f"{name}: {shown(uri)!r} can't be listed: {first_line(e)}") from e


def _is_folder(system: Any, path: str) -> bool:
    from pyarrow.fs import FileType

    return bool(system.get_file_info(path).type == FileType.Directory)


def _listed(system: Any, folder: str) -> list[str]:
    from pyarrow.fs import FileSelector

    selector = FileSelector(folder, recursive=True, allow_not_found=True)
    return [about.path for about in system.get_file_info(selector) if about.is_file]


def _fits(parts: list[str], wanted: list[str]) -> bool:
    """Whether a path fits a pattern, part by part; ** is any number of parts.

    >>> _fits(["a", "b", "c.csv"], ["**", "*.csv"]), _fits(["a", "c.csv"], ["*.csv"])
    (True, False)
    """
    if not wanted:
        return not parts
    if wanted[0] == "**":
        return any(_fits(parts[at:], wanted[1:]) for at in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], wanted[0]) and _fits(parts[1:], wanted[1:])


# ── standard input ───────────────────────────────────────────────────────────────────────────


def _stdin(name: str) -> Place:
    """Standard input, put down in a file without a name: it may be of any format, and is read in
    portions, twice where a join or `--verify` needs that."""
    try:
        kept = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  (as long as the source)
        shutil.copyfileobj(sys.stdin.buffer, kept, 2**20)
        head = os.pread(kept.fileno(), 4, 0)
    except (OSError, ValueError) as e:
        raise StoreError(
            f"{name}: standard input can't be put down in {tempfile.gettempdir()}: {e}; free some "
            "space there, or name another folder with TMPDIR"
        ) from e
    if not head:
        raise InputError(f"{name}: standard input is empty; only one side can be '-'")
    packed = next((kind for mark, kind in _PACKED.items() if head.startswith(mark)), None)
    path = f"/dev/fd/{kept.fileno()}"
    return Place("standard input", path, compression=packed, held=kept)
