"""`matwin.listen` and `matwin.connect`: rows that come over a socket, JSON lines or Arrow.

    whoever comes ──▶ visitors ──first row──▶ the peer ──bytes──▶ frames ──▶ batches
                         └── none ──▶ refused, counted           ends when the peer closes
                         next peer …                   listen(…, peers="all") goes on with the next

Anybody may connect to a port: a scanner, a health check, a web page.  Who has given no whole row is
a visitor, and holds nobody up; whose first row comes is the peer.  Peers are read one after the
other, not mixed: the order of a stream is one writer's promise.  What was sent can't be asked for
again, so that a restart goes on with what comes then.

A peer that breaks off (closes in the middle of a row, or sends what is none) has died.  With one
peer that is an error; with ``peers="all"`` it is counted, what it had given whole counts, and the
next peer goes on.

Left out: encryption and who may connect.  A socket is on the loopback unless a host is named.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from matwin.storage.errors import InputError

from .framing import Framer, Framing, format_of
from .growing import POLL_SECONDS, Growing, Switch
from .jsonl import CHUNK_BYTES, LINE_BYTES_MAX
from .reading import checked_schema, validated
from .report import Visitors
from .sources import Once

LOOPBACK = "127.0.0.1"
CONNECT_SECONDS = 10.0
QUEUE_MAX = 128
"""Connections that the kernel holds until they are let in."""
VISITORS_MAX = 64
"""So many may wait who have given no row; one more, and the first of them is refused."""
VISITORS_BYTES_MAX = 4 * LINE_BYTES_MAX
"""What they may have sent of their first rows."""


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
        server = socket.create_server((host, port), family=family, backlog=QUEUE_MAX)
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


class Peer:
    """Somebody who has connected, and what has come of them."""

    def __init__(self, source: socket.socket, framer: Framer) -> None:
        self.source, self.framer = source, framer
        self.rows: list[pa.RecordBatch] = []
        """Rows that are there."""
        self.error: InputError | None = None
        """What is wrong with what came after them."""
        self.is_over = self.is_half = False
        """Whether it has ended, and in the middle of a row."""
        self.held = 0
        """Bytes that are in no row yet."""

    def read(self) -> bool:
        """Read what has come, without waiting; whether there was anything, be it the end."""
        data = _received(self.source)
        if data == b"":
            return False
        try:
            if data is None:
                self._finish()
            else:
                self._take(data)
        except InputError as e:
            self.error, self.is_over = e, True
        if self.is_over:
            self.close()
        return True

    def _take(self, data: bytes) -> None:
        before = self.framer.place
        for frame in self.framer.each(data):
            self.rows.append(validated(frame.rows, self.framer.where))
        self.held += len(data) - (self.framer.place - before)
        self.is_over = self.framer.is_over

    def _finish(self) -> None:
        """The peer has closed: a last row without a newline, if it can be told to be whole."""
        self.is_over = True
        framer = self.framer
        try:
            if framer.has_half and not framer.is_certain:
                raise InputError(f"{framer.where}: line {framer.line + 1} has no end")
            self.rows += [validated(frame.rows, framer.where) for frame in framer.finish()]
        except InputError as e:
            self.is_half = True
            raise InputError(f"{e}; the peer has closed in the middle of it") from e

    @property
    def is_welcome(self) -> bool:
        """Whether it has given a row, or has at least ended like one of ours that had none: behind
        the header or schema that is expected."""
        has_head = self.framer.framing.format != "jsonl" and self.framer.has_head
        return bool(self.rows) or (self.is_over and self.error is None and has_head)

    def close(self) -> None:
        """Hear no more."""
        self.source.close()


FramerOf = Callable[[socket.socket], Framer]


class Connected:
    """The one peer of a connection."""

    goes_on = has_heard = False
    visitors: Visitors | None = None

    def __init__(self, peer: socket.socket) -> None:
        self._peer: socket.socket | None = peer

    def next(self, framer_of: FramerOf) -> Peer | None:
        """The next peer; None where nobody is there now."""
        assert self._peer is not None
        peer, self._peer = self._peer, None
        return Peer(peer, framer_of(peer))

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
        self.has_heard = False
        """Whether anybody had come or said anything when it was asked last."""
        self.visitors = Visitors()
        self._waiting: dict[int, Peer] = {}
        """Who has given no whole row yet, by descriptor; the first who came first."""

    def next(self, framer_of: FramerOf) -> Peer | None:
        """The next who gives a row; None where nobody has in a little while."""
        waited_for: list[Any] = [self._server, *self._waiting]
        ready, _, _ = select.select(waited_for, [], [], POLL_SECONDS)
        self.has_heard = bool(ready)
        while self._server in ready and self._let_in(framer_of):
            pass
        for descriptor in [each for each in ready if each in self._waiting]:
            peer = self._waiting[descriptor]
            if peer.read() and (peer.is_welcome or peer.is_over):
                del self._waiting[descriptor]
                if peer.is_welcome:
                    if not self.goes_on:
                        self.close()
                    return peer
                self.visitors.refused += 1
            self._make_room(but=peer)
        return None

    def _let_in(self, framer_of: FramerOf) -> bool:
        """Let one in; False where nobody is there."""
        try:
            source, _ = self._server.accept()
        except BlockingIOError:
            return False
        except ConnectionError:  # it has left before it was let in
            return True
        except OSError:  # no descriptor is free: it waits
            return False
        source.setblocking(False)
        peer = Peer(source, framer_of(source))
        self._waiting[source.fileno()] = peer
        self._make_room(but=peer)
        return True

    def _make_room(self, but: Peer) -> None:
        """Refuse the first who came, where too many wait or have half a row here."""
        others = [d for d, peer in self._waiting.items() if peer is not but]
        while others and (
            len(self._waiting) > VISITORS_MAX
            or sum(peer.held for peer in self._waiting.values()) > VISITORS_BYTES_MAX
        ):
            self._waiting.pop(others.pop(0)).close()
            self.visitors.refused += 1

    def close(self) -> None:
        """Take nobody any more."""
        self.is_over = True
        self._server.close()
        for peer in self._waiting.values():
            peer.close()
        self._waiting = {}


@dataclass(frozen=True)
class Peers(Growing):
    """Rows that come over sockets.  Make one with `listen` or `connect`."""

    is_validated: ClassVar[bool] = True  # where it is known who has sent it

    given: Once
    framing: Framing
    address: tuple[str, int]
    """Host and port."""
    sockets: Listening | Connected

    @property
    def visitors(self) -> Visitors | None:
        """Who has come and given nothing, or broken off, where it listens."""
        return self.sockets.visitors

    @property
    def halves(self) -> int:
        """Rows that were left out because their peer died in the middle of them."""
        return self.visitors.halves if self.visitors is not None else 0

    def close(self) -> None:
        """Let go of the port, where nothing has been read."""
        self.sockets.close()

    def pieces(self) -> Generator[Any]:
        return self._pieces(self.given.take(self.name))

    def _pieces(self, sockets: Listening | Connected) -> Generator[Any]:
        try:
            while not sockets.is_over:
                peer = sockets.next(self._framer)
                if peer is not None:
                    with closing(peer):
                        yield from self._rows(peer, sockets)
                elif self.switch.is_on and not sockets.has_heard:
                    return
                else:
                    yield None
        finally:
            sockets.close()

    def _framer(self, peer: socket.socket) -> Framer:
        return self.framing.framer(f"{self.name}: {_shown(peer)}", self.share)

    def _rows(self, peer: Peer, sockets: Listening | Connected) -> Iterator[Any]:
        """The rows of one peer, until it closes."""
        while True:
            rows, peer.rows = peer.rows, []
            yield from rows
            if peer.is_over:
                break
            if not _is_ready(peer.source, POLL_SECONDS):
                if self.switch.is_on:
                    return
                yield None
            else:
                peer.read()
        if peer.error is None:
            return
        if not sockets.goes_on or sockets.visitors is None:
            raise peer.error
        sockets.visitors.broken += 1
        sockets.visitors.halves += peer.is_half


def _is_ready(source: socket.socket, seconds: float) -> bool:
    return bool(select.select([source], [], [], seconds)[0])


def _received(peer: socket.socket) -> bytes | None:
    """What has come; None where the peer has closed, or is gone."""
    try:
        return peer.recv(CHUNK_BYTES) or None
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
