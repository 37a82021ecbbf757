"""Sockets and pipes: rows of real peers, also of those that die."""

from __future__ import annotations

import os
import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from growth import (
    SCHEMA,
    impatient,  # noqa: F401  (a fixture)
    listed,
    some_rows,
    there,
    written,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import matwin
from matwin.inbox import Bell, Inbox
from matwin.peers import Peers
from matwin.report import Visitors
from matwin.storage.errors import InputError

FORMATS = ["jsonl", "csv", "arrow"]


def wait_for(items: Iterator[object], count: int) -> list[object]:
    """So many rows, however many looks they take."""
    found: list[object] = []
    while len(found) < count:
        found += there(items)
    return found


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 12), st.lists(st.integers(1, 60), max_size=8))
def test_rows_are_the_same_however_they_are_sent(
    format: str, count: int, lengths: list[int]
) -> None:
    rows, source = some_rows(count), matwin.listen(":0", schema=SCHEMA, format=format)
    data = written(rows, format)
    found, items = [], source.items()
    with socket.create_connection(source.address) as peer:
        for length in lengths:
            peer.sendall(data[:length])
            data = data[length:]
            found += there(items)
        peer.sendall(data)
    if not count:
        source.drain()  # nobody can tell who says nothing from somebody else
    assert found + listed(items) == rows


@pytest.mark.parametrize("format", FORMATS)
def test_the_next_peer_goes_on_where_one_has_died(format: str) -> None:
    source = matwin.listen(":0", schema=SCHEMA, format=format, peers="all")
    items, found = source.items(), []
    data = written(some_rows(3), format)
    for rows in (0, 3, 6):
        whole = written(some_rows(3, first=rows), format)
        half = b"" if rows == 6 else written(some_rows(4), format)[len(data) : len(data) + 9]
        with socket.create_connection(source.address) as peer:
            peer.sendall(whole + half)
        found += wait_for(items, 3)
    source.drain()
    assert found + listed(items) == some_rows(9)
    assert source.halves == 2


@pytest.mark.parametrize("is_reset", [False, True])
def test_one_peer_that_dies_in_a_line_is_an_error(is_reset: bool) -> None:
    source = matwin.listen(":0", schema=SCHEMA)
    items = source.items()
    peer = socket.create_connection(source.address)
    peer.sendall(b'{"t": 1}\n{"t": ')
    assert wait_for(items, 1) == [{"t": 1, "x": None, "k": None}]
    if is_reset:  # as when its machine has gone
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    with pytest.raises(InputError, match=r"peer 127.0.0.1:\d+: line 2 is no JSON.*in the middle"):
        listed(items)


def test_hostile_lines_are_named_with_their_peer() -> None:
    source = matwin.listen(":0", schema=SCHEMA, name="feed")
    with socket.create_connection(source.address) as peer:
        peer.sendall(b'{"t": 1}\n{"t": "one"}\n')
        with pytest.raises(InputError, match=r"feed: peer .*: line 2: column 't' is 'one'"):
            listed(source.items())


POST = (
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\n"
    b'{"t": 7}\n'
)
STRAYS = {
    "nothing": b"", "a web page's POST": POST, "GET": b"GET / HTTP/1.1\r\n\r\n",
    "TLS": bytes.fromhex("1603010200010001fc0303") + bytes(range(200)), "a blank": b" ",
    "half a row": b'{"t": 1, "x"', "another header": b"time,k\n1,2\n", "zeros": bytes(64),
    "an Arrow file": b"ARROW1\x00\x00" + bytes(32),
}  # fmt: skip


def come(source: Peers, data: bytes, *, is_reset: bool = False) -> None:
    """Connect, say something, and go."""
    with socket.create_connection(source.address) as peer:
        peer.sendall(data)
        if is_reset:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def refused(source: Peers, items: Iterator[object], count: int) -> None:
    """Look until so many have been refused; no row comes meanwhile."""
    assert source.visitors is not None
    while source.visitors.refused < count:
        assert next(items) is None


@pytest.mark.parametrize("peers", ["one", "all"])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("is_reset", [False, True])
def test_a_stray_connection_ends_nothing(format: str, peers: Any, is_reset: bool) -> None:
    source = matwin.listen(":0", schema=SCHEMA, format=format, peers=peers)
    items = source.items()
    silent = [socket.create_connection(source.address) for _ in range(3)]  # holds nobody up
    for number, data in enumerate(STRAYS.values()):
        come(source, data, is_reset=is_reset)
        refused(source, items, number + 1)
    come(source, written(some_rows(4), format))
    found = wait_for(items, 4)
    if peers == "all":
        for number, data in enumerate(STRAYS.values(), start=len(STRAYS)):
            come(source, data, is_reset=is_reset)
            refused(source, items, number + 1)
        come(source, written(some_rows(4, first=4), format))
        found += wait_for(items, 4)
        source.drain()
    assert found + listed(items) == some_rows(8 if peers == "all" else 4)
    assert source.visitors is not None and source.visitors.broken == 0
    for each in silent:
        each.close()


def send(peer: socket.socket, data: bytes) -> None:
    with suppress(OSError):  # it may have been closed on us
        peer.sendall(data)


def look(items: Iterator[Any], found: list[object]) -> None:
    """Add what is there now, also where an error follows."""
    for item in items:
        if item is None:
            return
        found += item.to_pylist()


@pytest.mark.parametrize("format", FORMATS)
@given(st.integers(1, 6), st.lists(st.integers(1, 400), max_size=5), st.booleans())
@settings(max_examples=15, deadline=None)
def test_a_peer_that_breaks_after_rows(
    format: str, count: int, lengths: list[int], is_half: bool
) -> None:
    """What it gave whole counts however it was sent; with one peer what follows is an error."""
    rows = some_rows(count)
    whole = written(some_rows(count + 1), format)
    good = written(rows, format)
    if format == "arrow":
        good = good.removesuffix(b"\xff" * 4 + bytes(4))  # without its end
    bad = b"\xff" * 3 + b"\n" if format != "arrow" else b"ARROW1" + bytes(34)
    if format == "arrow" and count % 2:  # a batch with a text that is none
        text = some_rows(1, first=count)[0]["k"].encode()
        before, _, after = whole[len(good) :].rpartition(text)
        bad = before + b"\xff" * len(text) + after
    bad = whole[len(good) : len(good) + 5] if is_half else bad
    for peers in ("one", "all"):
        source = matwin.listen(":0", schema=SCHEMA, format=format, peers=peers)  # type: ignore[arg-type]
        items, data, is_error = source.items(), good + bad, False
        found: list[object] = []
        try:
            with socket.create_connection(source.address) as peer:
                for length in lengths:
                    send(peer, data[:length])
                    data = data[length:]
                    look(items, found)
                send(peer, data)
            while source.visitors is not None and not source.visitors.broken:
                look(items, found)
        except InputError as e:
            is_error = bool(re.match(r"port :0: peer 127.0.0.1:\d+: ", str(e)))
        assert found == rows
        assert is_error is (peers == "one")
        if peers == "one":
            continue
        come(source, written(some_rows(2), format))
        assert wait_for(items, 2) == some_rows(2)
        source.drain()
        assert listed(items) == []
        assert source.visitors is not None
        assert (source.visitors.refused, source.visitors.broken) == (0, 1)
        assert source.visitors.halves == int(is_half)


def test_too_many_visitors() -> None:
    """The first who came is refused; whoever has rows comes in all the same."""
    source = matwin.listen(":0", schema=SCHEMA)
    items = source.items()
    many = []
    for _ in range(3):
        many += [socket.create_connection(source.address) for _ in range(50)]
        assert next(items) is None
    come(source, written(some_rows(3), "jsonl"))
    assert wait_for(items, 3) + listed(items) == some_rows(3)
    assert source.visitors is not None and source.visitors.refused > 0
    for each in many:
        each.close()


def test_visitors_are_counted_in_the_reports() -> None:
    left = matwin.listen(":0", schema=SCHEMA, peers="all")
    report = matwin.Report()
    right = pa.table({"t": [0, 1, 2]})
    for data in (POST, b"", written(some_rows(3), "jsonl"), b'{"t": 5}\n{"t": '):
        come(left, data)
    left.drain()
    found = matwin.epsilon_join(left, right, on={"t": 0}, report=report).to_arrow()
    assert found.num_rows == 3
    assert report.left.visitors == Visitors(refused=2, broken=1, halves=1)
    assert report.right.visitors is None
    assert report.as_dict()["left"]["visitors"]["refused"] == 2
    report.check()


def test_connecting_to_a_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        source = matwin.connect(f"127.0.0.1:{port}", schema=SCHEMA, format="arrow")
        peer, _ = server.accept()
        with peer:
            peer.sendall(written(some_rows(5), "arrow"))
    assert listed(source.batches()) == some_rows(5)
    with pytest.raises(InputError, match="can be read only once"):
        source.batches()


def test_nobody_listens_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(InputError, match="can't be reached"):
        matwin.connect(f":{port}", schema=SCHEMA)


def test_a_port_that_is_taken_and_addresses_that_are_none() -> None:
    source = matwin.listen(":0", schema=SCHEMA)
    host, port = source.address
    assert host == "127.0.0.1"
    with pytest.raises(InputError, match="can't be listened to"):
        matwin.listen(f":{port}", schema=SCHEMA)
    source.close()
    for bad in ("9000", ":http", ":70000", "", ":-1"):
        with pytest.raises(InputError, match="is no address"):
            matwin.listen(bad, schema=SCHEMA)
    with pytest.raises(InputError, match="schema is a NoneType"):
        matwin.listen(":0", schema=None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="peers='many'"):
        matwin.listen(":0", schema=SCHEMA, peers="many")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="format='xml'"):
        matwin.listen(":0", schema=SCHEMA, format="xml")  # type: ignore[arg-type]


def test_a_closed_inbox_lets_go_of_the_port() -> None:
    source = matwin.listen(":0", schema=SCHEMA)
    inbox = Inbox(source.items(), Bell(), "feed", 2**20)
    inbox.start()
    thread = inbox._thread
    assert isinstance(thread, threading.Thread)
    inbox.close()
    thread.join(timeout=30)
    assert not thread.is_alive()
    again = matwin.listen(f":{source.address[1]}", schema=SCHEMA)
    assert isinstance(again, Peers)
    again.close()


@pytest.mark.parametrize("format", FORMATS)
def test_a_named_pipe(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"pipe.{format}"
    os.mkfifo(path)
    rows = some_rows(6)
    data = written(rows, format)

    def write() -> None:
        with path.open("wb", buffering=0) as pipe:
            for at in range(0, len(data), 7):
                pipe.write(data[at : at + 7])

    writer = threading.Thread(target=write)
    writer.start()
    source = matwin.tail(path, schema=None if format == "arrow" else SCHEMA)
    assert listed(source.batches()) == rows
    writer.join()


def test_the_first_lines_of_a_pipe_tell_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "pipe.jsonl"
    os.mkfifo(path)
    fd = os.open(path, os.O_RDWR)
    os.write(fd, b'{"t": 1}\n{"t": 2')
    source = matwin.tail(path)
    assert source.schema == pa.schema([("t", pa.int64())])
    items = source.items()
    assert there(items) == [{"t": 1}]
    os.write(fd, b"}\n")
    source.drain()
    assert listed(items) == [{"t": 2}]
    os.close(fd)


def test_a_pipe_that_ends_without_a_row(tmp_path: Path) -> None:
    path = tmp_path / "pipe.jsonl"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.open("wb").close())
    writer.start()
    with pytest.raises(InputError, match="ended without a row to tell its columns"):
        matwin.tail(path)
    writer.join()
