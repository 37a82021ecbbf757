"""Machine code as bytes that any process can put into its memory and call.

    object file (ELF, relocatable)  ──link──▶  image: sections one after the other
                                               places that hold an address within the image
                                               places that hold the address of a C function
    image  ──load──▶  fresh memory, addresses filled in, then executable and no longer writable

Compilers of object files are told to take whole 64-bit addresses everywhere (the large code model),
so there is one kind of place to fill in and nothing to compute.  Whatever else is met, another kind
of place, data that is written to, an unknown function, is `Unlinkable`: there is no guessing here.

Left out: unwinding tables (nothing throws through kernels), other processors and object formats.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

C_FUNCTIONS = frozenset({"malloc", "free", "memset", "memcpy", "memmove"})
"""What an image may call."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_WORD = struct.Struct("<Q")
_ELF64_LITTLE, _RELOCATABLE, _X86_64 = b"\x7fELF\x02\x01\x01", 1, 62
_PROGBITS, _SYMTAB, _RELA, _NOBITS, _UNWIND = 1, 2, 4, 8, 0x70000001
_WRITE, _ALLOC = 1, 2
_UNDEFINED, _COMMON = 0, 0xFFF2
_ADDRESS_64 = 1  # R_X86_64_64
_ALIGN = 64


class Unlinkable(Exception):
    """An object file that needs more than is done here."""


@dataclass(frozen=True, slots=True)
class Image:
    """Code and constants, laid out from address 0."""

    code: bytes
    entry: int
    inner: tuple[int, ...]
    """Where an address of the image itself stands, still counted from 0."""
    outer: tuple[tuple[int, str], ...]
    """Where the address of a C function belongs."""

    def to_bytes(self) -> bytes:
        """All of it, for a file."""
        about = json.dumps([self.entry, self.inner, self.outer]).encode()
        return struct.pack("<I", len(about)) + about + self.code

    @classmethod
    def from_bytes(cls, data: bytes) -> Image:
        """What `to_bytes` has made."""
        (size,) = struct.unpack_from("<I", data)
        entry, inner, outer = json.loads(data[4 : 4 + size])
        named = tuple((at, name) for at, name in outer)
        return cls(data[4 + size :], entry, tuple(inner), named)

    def load(self) -> Loaded:
        """Put it into memory; OSError where that may not be executed."""
        return Loaded(self)


class Loaded:
    """An image in memory, at `address`; it stays there as long as this object."""

    def __init__(self, image: Image) -> None:
        size = -(-len(image.code) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory[: len(image.code)] = image.code
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for at in image.inner:
            _WORD.pack_into(self._memory, at, base + _WORD.unpack_from(self._memory, at)[0])
        for at, name in image.outer:
            _WORD.pack_into(self._memory, at, c_address(name))
        read_and_execute = mmap.PROT_READ | mmap.PROT_EXEC
        if c_library().mprotect(ctypes.c_void_p(base), ctypes.c_size_t(size), read_and_execute):
            raise OSError("memory may not be made executable")
        self.address = base + image.entry


@cache
def c_library() -> Any:
    """The C library that this process has already."""
    return ctypes.CDLL(None, use_errno=True)


@cache
def c_address(name: str) -> int:
    """Where one of `C_FUNCTIONS` is."""
    if name not in C_FUNCTIONS:
        raise Unlinkable(name)
    return ctypes.cast(getattr(c_library(), name), ctypes.c_void_p).value or 0


# ── object files ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Section:
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int

    @property
    def is_kept(self) -> bool:
        return bool(self.flags & _ALLOC) and self.kind in (_PROGBITS, _NOBITS)


def linked(data: bytes, entry: str) -> Image:
    """The image of an object file whose function `entry` is to be called."""
    return _Linker(data).image(entry)


class _Linker:
    """The sections of one object file, and where each of them goes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        header = _HEADER.unpack_from(data)
        if not data.startswith(_ELF64_LITTLE) or header[1:3] != (_RELOCATABLE, _X86_64):
            raise Unlinkable("not an object file for x86-64")
        start, count = header[6], header[12]
        self._sections = [self._section(start + at * _SECTION.size) for at in range(count)]
        self._code = bytearray()
        self._places: dict[int, int] = {}
        for number, section in enumerate(self._sections):
            if section.is_kept:
                self._places[number] = self._laid_out(section)

    def _section(self, at: int) -> _Section:
        _, kind, flags, _, offset, size, link, info, align, _ = _SECTION.unpack_from(self._data, at)
        return _Section(kind, flags, offset, size, link, info, align)

    def _laid_out(self, section: _Section) -> int:
        if section.flags & _WRITE and section.size:
            raise Unlinkable("data that is written to")
        place = self._room(section.size, section.align)
        if section.kind == _PROGBITS:
            held = self._data[section.offset : section.offset + section.size]
            self._code[place : place + section.size] = held
        return place

    def _room(self, size: int, align: int) -> int:
        place = -(-len(self._code) // max(align, 1)) * max(align, 1)
        self._code.extend(bytes(place + size - len(self._code)))
        return place

    def image(self, entry: str) -> Image:
        (table,) = (section for section in self._sections if section.kind == _SYMTAB)
        symbols = list(self._symbols(table))
        inner, outer = [], []
        for at, target, addend in self._relocations():
            place = symbols[target]
            if isinstance(place, int):
                _WORD.pack_into(self._code, at, place + addend)
                inner.append(at)
            elif place in C_FUNCTIONS and addend == 0:
                outer.append((at, place))
            else:
                raise Unlinkable(place)
        starts = [place for name, place in self._named if name == entry]
        if len(starts) != 1 or not isinstance(starts[0], int):
            raise Unlinkable(f"no {entry}")
        return Image(bytes(self._code), starts[0], tuple(inner), tuple(outer))

    def _symbols(self, table: _Section) -> Any:
        """For each symbol its place in the image, or its name if it is not there."""
        self._named: list[tuple[str, int | str]] = []
        names = self._sections[table.link].offset
        for at in range(table.offset, table.offset + table.size, _SYMBOL.size):
            name_at, _, _, section, value, size = _SYMBOL.unpack_from(self._data, at)
            end = self._data.index(b"\0", names + name_at)
            name = self._data[names + name_at : end].decode()
            place: int | str = name
            if section == _COMMON:
                place = self._room(size, max(value, 1))
            elif section in self._places:
                place = self._places[section] + value
            self._named.append((name, place))
            yield place

    def _relocations(self) -> Any:
        """Place in the image, symbol, and what is added to the symbol's address."""
        for section in self._sections:
            if section.kind != _RELA or section.info not in self._places:
                continue  # of unwinding and other tables that are left out
            for at in range(section.offset, section.offset + section.size, _RELOCATION.size):
                offset, info, addend = _RELOCATION.unpack_from(self._data, at)
                if info & 0xFFFFFFFF != _ADDRESS_64:
                    raise Unlinkable("a place that is not a whole address")
                yield self._places[section.info] + offset, info >> 32, addend
