"""One file as a source reads it: its columns, its rows, and what is said when it fails.

    place ─▶ described()   its columns and its size, no row read
          ─▶ batches()     its rows, in portions of bytes (`shares.py`)

Invariant: a file that can't be read, from its name to its last byte, is an `InputError` with the
name of source and file.
"""

from __future__ import annotations

import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from matwin.storage.errors import InputError, MatwinError

from .hints import did_you_mean
from .places import Place
from .reading import checked_schema, first_line
from .row_groups import RowGroup
from .shares import ReadShare

NAMES_MAX = 10_000  # of a folder, when a file is missing
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")


@dataclass(frozen=True)
class File(ABC):
    """One file: where it is, and what it says of itself."""

    is_parsed: ClassVar[bool] = False
    """Whether Arrow makes all values from text, so that no buffer can be malformed."""
    place: Place
    size: int
    name: str
    """How errors call the source."""
    schema: Any = None
    bytes_hint: int | None = None
    rows_hint: int | None = None
    groups: tuple[int, ...] | None = None
    """The row groups that are read, where a format has them; None: all."""
    is_declared: bool = False
    """Whether somebody has said what the columns are, where the file itself does not."""
    constants: tuple[tuple[str, pa.Scalar], ...] = ()
    """Columns that the file does not have, and what they are in all its rows."""

    @property
    def path(self) -> str:
        """How messages call the file."""
        return self.place.path

    @abstractmethod
    def described(self) -> File:
        """The file with its schema, and with its size where that is cheap to know."""

    @abstractmethod
    def batches(self, columns: Sequence[str], share: ReadShare) -> Iterator[pa.RecordBatch]:
        """Its rows, with at least these columns."""

    def row_groups(self, column: str) -> list[RowGroup] | None:
        """What the file says of a column without being read; None: nothing."""
        return None

    def explained(self, error: str) -> str:
        """What Arrow says of a failure, and what to do about it."""
        return f"{error}; is the file whole and of this format?"


def described_file(
    place: Place, name: str, kind: Callable[..., File], declared: pa.Schema | None = None
) -> File:
    """A file of a format, with what it says of itself."""
    where = f"{name}: file {place.path!r}"
    file = kind(place, size_of(place, where), name, declared, is_declared=declared is not None)
    with reading(file, where):
        file = file.described()
    checked_schema(file.schema, where)
    return file


def size_of(place: Place, where: str) -> int:
    """A file's bytes; an error says that it is not there or can't be opened."""
    if place.local is None:
        about = place.system.get_file_info(place.inner)
        if about.size is None:
            raise InputError(f"{where} is not there")
        return int(about.size)
    try:
        found = Path(place.local).stat()
    except FileNotFoundError as e:
        raise InputError(f"{where} is not there{_near_uri(place.path)}{_near(place.local)}") from e
    except (OSError, ValueError) as e:
        raise InputError(f"{where} can't be opened: {e}") from e
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{where} is not a regular file; read it with pyarrow and pass the reader")
    return found.st_size


def _near_uri(path: str) -> str:
    """A question for a URI with a slash too few."""
    scheme, slash, rest = path.partition(":/")
    is_uri = slash and scheme.isalnum() and len(scheme) > 1 and not rest.startswith("/")
    return f" (did you mean '{scheme}://{rest}'?)" if is_uri else ""


def _near(path: str) -> str:
    """A question for a file of a similar name in the same folder."""
    try:
        names = [other.name for other in islice(Path(path).parent.iterdir(), NAMES_MAX)]
    except (OSError, ValueError):
        return ""
    return did_you_mean(Path(path).name, names)


@contextmanager
def reading(file: File, where: str) -> Iterator[None]:
    """Whatever a reader raises, as an error that names the file."""
    try:
        yield
    except MatwinError:
        raise
    except (pa.ArrowException, OSError, ValueError, EOFError, OverflowError) as e:
        raise InputError(f"{where}: {file.explained(first_line(e))}") from e
