"""CRC-32, by isal where it is installed: 11.7 GB/s instead of zlib's 3.7; the same numbers."""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ModuleNotFoundError:
    from zlib import crc32

__all__ = ["crc32"]
