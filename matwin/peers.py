"""`matwin.listen` and `matwin.connect`: rows that come over a socket, JSON lines or Arrow.

    peer ──bytes──▶ frames ──▶ batches       ends when the peer closes
    next peer …                              listen(…, peers="all") goes on with whoever comes next

Peers are read one after the other, not mixed: the order of a stream is one writer's promise.  What
was sent can't be asked for again, so that a restart goes on with what comes then.

A peer that closes in the middle of a row has died.  With one peer that is an error; with
``peers="all"`` the half row is left out, counted in `halves`, and the next peer goes on.

Left out: encryption and who may connect.  A socket is on the loopback unless a host is named.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from matwin.storage.errors import InputError

from .framing import Frame, Framer, Framing, format_of
from .growing import POLL_SECONDS, Growing, Switch
from .jsonl import CHUNK_BYTES
from .reading import checked_schema
from .sources import Once

LOOPBACK = "127.0.0.1"
CONNECT_SECONDS = 10.0


def listen(
    address: str,
    *,
    schema: pa.Schema,
    format: Literal["jsonl", "csv", "tsv", "arrow"] = "jsonl",
    peers: Literal["one", "all"] = "one",
    once: bool = False,
    name: str | None = None,
) -> Peers:
    """Rows that somebody sends to a port: ``":9000"``, or ``"host:9000"`` for others than this
    machine's programs.  Port 0 takes a free one; `address` of the source says which.

    It ends when the peer closes; with ``peers="all"`` it goes on with the next one.

    >>> import matwin, pyarrow as pa, socket
    >>> source = matwin.listen(":0", schema=pa.schema([("t", pa.int64())]))
    >>> with socket.create_connection(source.address) as peer:
    ...     peer.sendall(b'{"t": 1}\\n{"t": 2}\\n')
    >>> [row for batch in source.batches() for row in batch.to_pylist()]
    [{'t': 1}, {'t': 2}]
    """
    called = name or f"port {address}"
    if peers not in ("one", "all"):
        raise InputError(f"{called}: peers={peers!r}; choose 'one' or 'all'")
    framing = _framing(format, schema, called)
    host, port = _address(address, called)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server = socket.create_server((host, port), family=family, backlog=8)
    except OSError as e:
        raise InputError(f"{called}: it can't be listened to: {e.strerror or e}") from e
    server.setblocking(False)
    found = server.getsockname()
    sockets = Listening(server, goes_on=peers == "all")
    return Peers(called, framing.schema, False, None, None, Switch(once), Once(sockets, sockets),
                 framing, (found[0], found[1]), sockets)  # fmt: skip


def connect(
    address: str,
    *,
    schema: pa.Schema,
    format: Literal["jsonl", "csv", "tsv", "arrow"] = "jsonl",
    once: bool = False,
    name: str | None = None,
) -> Peers:
    """Rows that a server sends to whoever connects to ``"host:9000"``, until it closes."""
    called = name or f"server {address}"
    framing = _framing(format, schema, called)
    host, port = _address(address, called)
    try:
        peer = socket.create_connection((host, port), timeout=CONNECT_SECONDS)
    except OSError as e:
        raise InputError(f"{called}: it can't be reached: {e.strerror or e}") from e
    peer.setblocking(False)
    sockets = Connected(peer)
    return Peers(called, framing.schema, False, None, None, Switch(once), Once(sockets, sockets),
                 framing, (host, port), sockets)  # fmt: skip


def _framing(format: str, schema: object, name: str) -> Framing:
    if not isinstance(schema, pa.Schema):
        raise InputError(f"{name}: schema is a {type(schema).__name__}; give a pyarrow.Schema")
    return Framing(format_of("", format, name), checked_schema(schema, name), True)


def _address(text: object, name: str) -> tuple[str, int]:
    """Host and port of ``:9000``, ``host:9000``, ``[::1]:9000``."""
    host, colon, port = str(text).rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InputError(f"{name}: {text!r} is no address; write ':9000' or 'host:9000'")
    return host.removeprefix("[").removesuffix("]") or LOOPBACK, int(port)


class Connected:
    """The one peer of a connection."""

    goes_on = False

    def __init__(self, peer: socket.socket) -> None:
        self._peer: socket.socket | None = peer
        self.halves = 0

    def next(self) -> socket.socket | None:
        """The next peer; None where nobody is there now."""
        peer, self._peer = self._peer, None
        return peer

    @property
    def is_over(self) -> bool:
        """Whether nobody comes any more."""
        return self._peer is None

    def close(self) -> None:
        """Take nobody any more."""
        if self._peer is not None:
            self._peer.close()
            self._peer = None


class Listening:
    """The peers that come to a port."""

    def __init__(self, server: socket.socket, *, goes_on: bool) -> None:
        self._server, self.goes_on = server, goes_on
        self.is_over = False
        self.halves = 0

    def next(self) -> socket.socket | None:
        """The next peer; None where nobody has come in a little while."""
        if not _is_ready(self._server, POLL_SECONDS):
            return None
        try:
            peer, _ = self._server.accept()
        except OSError:  # it has left before it was let in
            return None
        peer.setblocking(False)
        self.is_over = not self.goes_on
        return peer

    def close(self) -> None:
        """Take nobody any more."""
        self.is_over = True
        self._server.close()


@dataclass(frozen=True)
class Peers(Growing):
    """Rows that come over sockets.  Make one with `listen` or `connect`."""

    given: Once
    framing: Framing
    address: tuple[str, int]
    """Host and port."""
    sockets: Listening | Connected

    @property
    def halves(self) -> int:
        """Rows that were left out because their peer died in the middle of them."""
        return self.sockets.halves

    def close(self) -> None:
        """Let go of the port, where nothing has been read."""
        self.sockets.close()

    def pieces(self) -> Generator[Any]:
        return self._pieces(self.given.take(self.name))

    def _pieces(self, sockets: Listening | Connected) -> Generator[Any]:
        try:
            while not sockets.is_over:
                peer = sockets.next()
                if peer is not None:
                    with peer:
                        yield from self._rows(peer, sockets)
                elif self.switch.is_on:
                    return
                else:
                    yield None
        finally:
            sockets.close()

    def _rows(self, peer: socket.socket, sockets: Listening | Connected) -> Iterator[Any]:
        """The rows of one peer, until it closes."""
        framer = self.framing.framer(f"{self.name}: {_shown(peer)}", self.share)
        while not framer.is_over:
            data = _received(peer)
            if data:
                yield from (frame.rows for frame in framer.add(data))
            elif data is None:
                break
            elif self.switch.is_on:
                return
            else:
                yield None
        try:
            rest = _finished(framer)
        except InputError as e:
            if not sockets.goes_on:
                raise InputError(f"{e}; the peer has closed in the middle of it") from e
            sockets.halves += 1
            return
        yield from (frame.rows for frame in rest)


def _finished(framer: Framer) -> list[Frame]:
    """A last row without a newline, if it can be told to be whole."""
    if framer.has_half and not framer.is_certain:
        raise InputError(f"{framer.where}: line {framer.line + 1} has no end")
    return [] if framer.is_over else framer.finish()


def _is_ready(source: socket.socket, seconds: float) -> bool:
    return bool(select.select([source], [], [], seconds)[0])


def _received(peer: socket.socket) -> bytes | None:
    """What has come; None where the peer has closed, or is gone."""
    try:
        return peer.recv(CHUNK_BYTES) or None if _is_ready(peer, POLL_SECONDS) else b""
    except BlockingIOError:
        return b""
    except OSError:
        return None


def _shown(peer: socket.socket) -> str:
    try:
        host, port, *_ = peer.getpeername()
    except OSError:
        return "a peer"
    return f"peer {host}:{port}"
