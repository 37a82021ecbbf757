"""Small sealed records: the twin of ``docs/FORMAT.md`` for all that is not a page.

    format     in data.mdb: version, durability, page size, and the boot an unsynced file is for
    complete   in data.mdb: the last complete step and its state
    sealed     a file of its own: the last complete step once more, for LMDB can't tell
    owner      a file of its own: which process has the folder, durability and boot once more, and
               whether a step was ever completed

Every record begins with a magic, the checksum of all that follows it, and a version.  A record that
was damaged is never taken for another: it is an error, or it counts as missing.

What a file survives stands in the file itself.  The owner's record repeats it for the two cases in
which the file can't be read: an unsynced file that a power cut has torn, and a file that is gone.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass, replace
from typing import NamedTuple

from .checksum import crc32
from .errors import CorruptPage, StoreError

FILE_VERSION = 2
OWNER_VERSION = 1
FORMAT_KEY = b"\x00format"
COMPLETE_KEY = b"\x00complete"
DURABILITIES = ("checkpoint", "epoch")  # by their numbers in records

FORMAT = struct.Struct("<8sIHHI40s")
COMPLETE = struct.Struct("<8sIHHQQ")
OWNER = struct.Struct("<8sIHBBQ40s")
SEALED = struct.Struct("<8sIHHQQQI")
SEALED_VERSION = 1
_FILE_MAGIC = b"MATWINFL"
OWNER_MAGIC = b"MATWINOW"
SEALED_MAGIC = b"MATWINLS"
_BOOT_BYTES_MAX = 40


@dataclass(frozen=True, slots=True)
class Trust:
    """What a file survives: a power cut, or the end of a process until the machine restarts."""

    durability: str
    boot: str

    @classmethod
    def of(cls, durability: str, boot: str) -> Trust:
        """A synced file is good after any boot, so it names none."""
        return cls(durability, "" if durability == "epoch" else boot)

    def is_void(self, boot: str) -> bool:
        """Whether nothing in the file is to be trusted since the machine has started anew."""
        return self.durability == "checkpoint" and self.boot != boot

    @property
    def is_synced(self) -> bool:
        """Whether commits wait for the disk."""
        return self.durability == "epoch"


@dataclass(frozen=True, slots=True)
class Format:
    """What a file says of itself."""

    page_size: int
    trust: Trust


def pack_format(page_size: int, trust: Trust) -> bytes:
    """The format record."""
    number = DURABILITIES.index(trust.durability)
    return _sealed(
        FORMAT.pack(_FILE_MAGIC, 0, FILE_VERSION, number, page_size, _packed_boot(trust))
    )


def unpack_format(record: bytes | None, where: str) -> Format:
    """What the format record says."""
    if record is None:
        raise StoreError(f"{where} is an LMDB file, but not one of MatWin's; name another folder")
    version = version_of(record)
    if version not in (None, FILE_VERSION):
        raise StoreError(
            f"{where} has format version {version}, this is version {FILE_VERSION}; open it with "
            "the release that wrote it, or delete the folder and run again from the source"
        )
    _check_seal(record, FORMAT.size, f"{where}: the format record")
    _, _, _, number, page_size, boot = FORMAT.unpack_from(record)
    trust = _trust(number, boot)
    if trust is None:
        raise CorruptPage(f"{where}: the format record is damaged; {_REMEDY}")
    return Format(page_size, trust)


def version_of(record: bytes | None) -> int | None:
    """The version that a format record claims, whole or not; None where it is none."""
    if record is None or len(record) < 14 or record[:8] != _FILE_MAGIC:
        return None
    return int.from_bytes(record[12:14], "little")


class Complete(NamedTuple):
    """The last complete step, and its state."""

    step: int
    state: bytes
    is_sealed: bool
    """Whether it is sealed in a file of its own as well."""


def pack_complete(complete: Complete) -> bytes:
    """The complete record."""
    step, state, is_sealed = complete
    fields = (FILE_VERSION, is_sealed, step, len(state))
    return _sealed(COMPLETE.pack(_FILE_MAGIC, 0, *fields) + state)


def unpack_complete(record: bytes | None, where: str) -> Complete:
    """What the complete record says."""
    what = f"{where}: the complete record"
    _check_seal(record or b"", COMPLETE.size, what)
    assert record is not None
    _, _, version, is_sealed, step, length = COMPLETE.unpack_from(record)
    if version != FILE_VERSION or is_sealed > 1 or length != len(record) - COMPLETE.size:
        raise CorruptPage(f"{what} is damaged; {_REMEDY}")
    return Complete(step, record[COMPLETE.size :], bool(is_sealed))


@dataclass(frozen=True, slots=True)
class Sealed:
    """The last complete step as it stands beside LMDB's file."""

    number: int
    """Of the record: each is written after the one before it, in the other slot."""
    step: int
    transaction: int
    crc: int
    """Of the meta page that this transaction has written."""

    def tells_same(self, other: Sealed) -> bool:
        """Whether two records differ in nothing but their own number."""
        return self == replace(other, number=self.number)


def pack_sealed(sealed: Sealed) -> bytes:
    """The record of a slot."""
    return _sealed(SEALED.pack(SEALED_MAGIC, 0, SEALED_VERSION, 0, *astuple(sealed)))


def unpack_sealed(record: bytes) -> Sealed | None:
    """What a slot says; None for anything but a whole record."""
    if len(record) < SEALED.size or record != _sealed(record):
        return None
    magic, _, version, _, *fields = SEALED.unpack(record)
    return Sealed(*fields) if (magic, version) == (SEALED_MAGIC, SEALED_VERSION) else None


@dataclass(frozen=True, slots=True)
class Claim:
    """Which process has the folder, and what it knew of the data file."""

    process: int
    trust: Trust
    has_steps: bool = False
    """Whether a step was completed, or was about to be."""


def pack_owner(claim: Claim) -> bytes:
    """The owner's record."""
    trust = claim.trust
    number = DURABILITIES.index(trust.durability)
    fields = (OWNER_VERSION, number, claim.has_steps, claim.process, _packed_boot(trust))
    return _sealed(OWNER.pack(OWNER_MAGIC, 0, *fields))


def unpack_owner(record: bytes) -> Claim | None:
    """What an owner's record says; None for anything but a whole one."""
    if len(record) < OWNER.size or record[: OWNER.size] != _sealed(record[: OWNER.size]):
        return None
    magic, _, version, number, has_steps, process, boot = OWNER.unpack_from(record)
    trust = _trust(number, boot)
    if magic != OWNER_MAGIC or version != OWNER_VERSION or trust is None or has_steps > 1:
        return None
    return Claim(process, trust, bool(has_steps))


def _packed_boot(trust: Trust) -> bytes:
    return trust.boot.encode()[:_BOOT_BYTES_MAX]


def _trust(number: int, boot: bytes) -> Trust | None:
    if number >= len(DURABILITIES):
        return None
    return Trust(DURABILITIES[number], boot.rstrip(b"\x00").decode(errors="replace"))


_REMEDY = "restore the file, or delete it and run again from the source"


def _sealed(record: bytes) -> bytes:
    """The record with the checksum of what follows it at bytes 8 to 12."""
    return record[:8] + struct.pack("<I", crc32(record[12:])) + record[12:]


def _check_seal(record: bytes, size_min: int, what: str) -> None:
    if len(record) < size_min or record != _sealed(record) or record[:8] != _FILE_MAGIC:
        raise CorruptPage(f"{what} is damaged; {_REMEDY}")
