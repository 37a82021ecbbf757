"""Files that commands write: whole or not at all, and never over what they read.

    -o out.csv ──check──▶ .matwin-3f….part, locked ──rows──▶ complete ──▶ out.csv
                 │                     └── killed: the next run that writes here removes it
                 └── an input, or there already without --overwrite: refused before anything is read

Invariants:
* A file appears under its name when it is complete and not before; what was there stays until then.
* What is replaced hands down its mode; what is new follows the umask.
* Nothing is written to a name that somebody could have guessed, or through a link found there.
* An object of an object store is put down here first and uploaded in one go: an upload stream of
  Arrow's that is dropped completes itself, so a join that fails would leave half an object.
* Devices and pipes are written as they are, and so is what the shell has opened already, with > or
  >>, and is reached as /dev/stdout or /dev/fd/3.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from matwin.storage.errors import InputError, MatwinError, StoreError
from matwin.storage.partfile import PartFile

from .places import is_below, is_uri, shown, system_of

_OPEN = re.compile(r"/dev/(?:fd/(\d+)|(stdout)|(stderr))|/proc/self/fd/(\d+)")


def check_outputs(
    outputs: Mapping[str, str | Path | None],
    inputs: Iterable[str],
    *,
    overwrite: bool,
    is_folder: bool = False,
) -> None:
    """Refuse outputs that would destroy an input, each other, or a file that nobody gave up.

    `outputs` are paths by their option, of files unless `is_folder`; `inputs` paths, folders and
    globs.
    """
    inputs = list(inputs)
    _check_objects(outputs, inputs)
    given = {o: place(path) for o, path in outputs.items() if path is not None and is_file(path)}
    reads = [(word, path) for word in inputs for path in _matched(word)]
    _check_stdout(reads)
    for option, out in given.items():
        about = _stat(out)
        if about is not None and _is_special(about):
            continue
        for word, path in reads:
            if _is_in(path, out, about):
                raise InputError(f"{option} {outputs[option]!s:.200} is an input, by {word!r}; "
                                 "name another file")  # fmt: skip
        is_kept = not overwrite and open_descriptor(out) is None
        if about is not None and is_kept and (is_folder or stat.S_ISREG(about.st_mode)):
            raise _taken(f"{option} {outputs[option]!s}")
        if list(given.values()).count(out) > 1:
            raise InputError(f"{' and '.join(given)} name the same file; give each its own")


def is_file(path: str | Path) -> bool:
    """Whether an output is a file of this machine: no standard output and no object."""
    return str(path) != "-" and not is_uri(str(path))


def address(out: str) -> str:
    """The name of an output, without the options of a URI.

    >>> address("s3://bucket/a.csv?region=eu-west-1"), address("what?.csv")
    ('s3://bucket/a.csv', 'what?.csv')
    """
    return shown(out) if is_uri(out) else out


def _check_objects(outputs: Mapping[str, str | Path | None], inputs: Iterable[str]) -> None:
    """Refuse an object that would replace an input."""
    for option, out in outputs.items():
        for word in inputs if out is not None and is_uri(str(out)) else ():
            if is_uri(word) and is_below(str(out), word):
                raise InputError(f"{option} {shown(str(out))} is an input, by {shown(word)!r}; "
                                 "name another object")  # fmt: skip


def _check_stdout(reads: Iterable[tuple[str, Path]]) -> None:
    """Standard output may be led into a file that is read: ``>> left.csv``."""
    about = None
    with suppress(OSError, ValueError):  # a standard output without a number is no file
        about = os.fstat(sys.stdout.fileno())
    for word, path in reads:
        if about is not None and _is_in(path, path, about):
            raise InputError(f"standard output is an input, by {word!r}; lead it elsewhere")


def _taken(what: str) -> InputError:
    return InputError(f"{what} is there already; --overwrite replaces it, or name another file")


def open_descriptor(path: str | Path) -> int | None:
    """The number of the open file that a path is another name for; None where it is not.

    >>> open_descriptor("/dev/stdout"), open_descriptor("/dev/fd/3"), open_descriptor("out.csv")
    (1, 3, None)
    """
    found = _OPEN.fullmatch(str(path))
    if found is None:
        return None
    number, stdout, _, other = found.groups()
    return int(number or other or (1 if stdout else 2))


def place(path: str | Path) -> Path:
    """Where an output goes: behind all links, but for devices, pipes and what is open already,
    which may have no name there (/dev/stdout leads to ``pipe:[4711]``)."""
    if not str(path):
        raise InputError("'' is no path; name a file")
    try:
        found = Path(path).expanduser()
        if open_descriptor(found) is not None:
            return found
        about = _stat(found)
        return found if about is not None and _is_special(about) else found.resolve()
    except (OSError, ValueError, RuntimeError) as e:
        raise InputError(f"{str(path)!r} is no path: {e}") from e


def _stat(path: Path) -> os.stat_result | None:
    with suppress(OSError):
        return path.stat()
    return None


def _is_special(about: os.stat_result) -> bool:
    """A device, a pipe or a socket, which is written and not replaced."""
    return not (stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode))


def _matched(word: str) -> list[Path]:
    """The files and folders on this machine that an input's word means."""
    try:
        path = Path(word).expanduser()
        if os.path.lexists(path):
            return [path]
        return [Path(found) for found in glob.glob(str(path), recursive=True)]  # noqa: PTH207
    except (OSError, ValueError, RuntimeError):
        return []  # whoever reads it will say what is wrong


def _is_in(path: Path, out: Path, about: os.stat_result | None) -> bool:
    """Whether an input is the output, by this or any other name of it, or lies in its folder."""
    found = _stat(path)
    if found is not None and about is not None and os.path.samestat(found, about):
        return True
    return about is not None and stat.S_ISDIR(about.st_mode) and out in path.resolve().parents


@contextmanager
def written(out: str | Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """A file that takes its name when it is complete; its own failures are explained."""
    if is_uri(str(out)):
        with _object(str(out), overwrite=overwrite) as file:
            yield file
        return
    with explained(str(out)):
        path = place(out)
        about = _stat(path)
        if about is not None and stat.S_ISDIR(about.st_mode):
            raise InputError(f"{str(out)!r} is a folder; name a file in it")
        is_special = open_descriptor(path) is not None or (about is not None and _is_special(about))
        if about is not None and not is_special and not overwrite:
            raise _taken(repr(str(out)))
    with _device(out, path) if is_special else _part(out, path, overwrite) as file:
        yield file


def write_pieces(out: str | Path, pieces: Iterable[str], *, overwrite: bool) -> int:
    """Write the whole text or nothing; returns its size."""
    size = 0
    with written(out, overwrite=overwrite) as file:
        for piece in pieces:
            with explained(str(out)):
                size += file.write(piece.encode())
    return size


def device(path: Path) -> BinaryIO:
    """A device, a pipe or a file that is open already, to be written."""
    descriptor = open_descriptor(path)
    return path.open("wb") if descriptor is None else os.fdopen(os.dup(descriptor), "wb")


def is_regular(file: BinaryIO) -> bool:
    """Whether an open file is one, and no device or pipe."""
    return stat.S_ISREG(os.fstat(file.fileno()).st_mode)


@contextmanager
def _device(out: str | Path, path: Path) -> Iterator[BinaryIO]:
    with explained(str(out)):
        file = device(path)
    try:
        yield file
        with explained(str(out)):
            file.flush()
    finally:
        with suppress(OSError):  # what could not be written has been told
            file.close()


@contextmanager
def _object(uri: str, *, overwrite: bool) -> Iterator[BinaryIO]:
    """A file here that becomes an object elsewhere once it is complete."""
    from pyarrow.fs import FileType, LocalFileSystem, copy_files  # here: few need it

    name = shown(uri)
    system, path = system_of(uri, "output")
    if isinstance(system, LocalFileSystem):
        with written(path, overwrite=overwrite) as file:
            yield file
        return
    with explained(name):
        if not overwrite and system.get_file_info(path).type != FileType.NotFound:
            raise _taken(repr(name))
        kept: Any = tempfile.NamedTemporaryFile(prefix="matwin-")  # noqa: SIM115  (closed below)
    with kept:
        yield kept
        with explained(name):
            kept.flush()
            here = LocalFileSystem()
            copy_files(kept.name, path, source_filesystem=here, destination_filesystem=system)


@contextmanager
def _part(out: str | Path, path: Path, overwrite: bool) -> Iterator[BinaryIO]:
    with explained(str(out)):
        part = PartFile(path, overwrite=overwrite)
    file = os.fdopen(part.descriptor, "wb")
    try:
        yield file
        with explained(str(out)):
            file.flush()
            part.complete()
    finally:
        part.remove()
        with suppress(OSError):  # what could not be written has been told
            file.close()


@contextmanager
def explained(out: str) -> Iterator[None]:
    """What goes wrong while something is written, as an error that says what to do."""
    try:
        yield
    except (MatwinError, BrokenPipeError):
        raise
    except FileNotFoundError as e:
        raise InputError(f"{out!r}: its folder is not there; make it first") from e
    except FileExistsError as e:
        raise _taken(repr(out)) from e
    except PermissionError as e:
        raise InputError(f"{out!r} may not be written: {e.strerror}") from e
    except pa.ArrowException as e:
        raise InputError(f"{out!r} can't hold these rows, choose another format: {e}") from e
    except ValueError as e:
        raise InputError(f"{out!r} can't be written: {e}") from e
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreError(f"{out!r}: the disk is full; free some space and run again") from e
        raise StoreError(f"{out!r} can't be written: {e}") from e
