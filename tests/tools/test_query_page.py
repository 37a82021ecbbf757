"""The status page of a running query, in a real browser, and the server behind it."""

from __future__ import annotations

import errno
import http.client
import json
import re
import select
import signal
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jobs
import pyarrow as pa
import pytest
from browser import HOSTILE, Watch, chromium

from matwin.operators.epochs.continuous import Status
from matwin.storage.errors import StoreError
from matwin.text import escaped
from matwin.tools.query.board import EPOCHS_MAX, RESULTS_MAX, ROWS_MAX, Board
from matwin.tools.query.server import (
    CONNECTIONS_MAX,
    QUEUE_MAX,
    Address,
    StatusServer,
    is_ours,
    whole_page,
)

SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "status-screenshots"
WIDTHS = (390, 768, 1920)


@contextmanager
def served(folder: Path) -> Iterator[tuple[Any, str]]:
    """A query that reads its standard input, and the address of its page."""
    (folder / "live.toml").write_text(jobs.LIVE, encoding="utf-8")
    words = ("query", "live.toml", "--status", ":0", "--format", "jsonl")
    with jobs.running(folder, *words) as child:
        assert child.stderr is not None
        found = re.fullmatch(r"status page: (http://127\.0\.0\.1:\d+/)\n", child.stderr.readline())
        assert found is not None
        yield child, found[1]


def asked(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url + "status.json", timeout=20) as answer:
        told: dict[str, Any] = json.load(answer)
    return told


def test_a_browser_follows_the_query(tmp_path: Path) -> None:
    with served(tmp_path) as (child, url), chromium() as browser:
        watch = Watch()
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        watch.listen(page)
        page.goto(url)
        page.wait_for_selector("body[data-state=running][data-epoch='0']")
        assert page.text_content("#results") == "No rows yet."
        for epoch in range(1, 4):
            names = [HOSTILE[0], HOSTILE[1], f"k{epoch}"]
            jobs.say(child, *({"t": epoch * 10 - 9, "k": name} for name in names))
        jobs.say(child, {"t": 31, "k": "last"})
        page.wait_for_selector("body[data-state=running][data-epoch='3']")
        cells = page.locator("#results td").all_text_contents()
        assert {*map(escaped, HOSTILE), "k1", "k2", "k3"} <= set(cells)
        rows = page.locator("#epochs tbody tr").all_text_contents()
        assert len(rows) == 3 and rows[0].startswith("320 … 30a 33")
        assert page.locator("#rows rect").count() == 6 and page.locator("img").count() == 0
        tiles = page.text_content("#tiles")
        assert "Rows in10" in tiles and "20 … 30" in tiles and "no times to tell by" in tiles
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(1200)  # it asks again, and draws for the width
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=SCREENSHOTS / f"{width}.png", full_page=True)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert watch.faults == [] and set(watch.requests) == {url, url + "status.json"}
        child.stdin.close()
        assert child.wait(60) == 0
        page.wait_for_selector("body[data-state=lost]", timeout=20_000)
        context.close()


def test_a_slow_reader_of_the_page_holds_nobody_up(tmp_path: Path) -> None:
    with served(tmp_path) as (child, url):
        port = int(url.rstrip("/").rpartition(":")[2])
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        idle[0].sendall(b"GET / HTTP/1.1\r\nHos")
        jobs.say(child, {"t": 1, "k": "x"}, {"t": 11, "k": "y"})
        assert json.loads(child.stdout.readline())["k"] == "x"
        assert asked(url)["status"]["epoch"] == 1
        child.stdin.close()
        assert child.wait(60) == 0
        for each in idle:
            each.close()


LISTENS = """
[sources.a]
listen = ":{port}"
peers = "all"
schema = {{t = "int64", k = "string"}}
[cut]
every = 10
on = "t"
[query]
sql = "SELECT k, count(*) AS n FROM a GROUP BY k ORDER BY k"
"""


def test_connections_that_come_to_nothing_are_counted(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "listens.toml").write_text(LISTENS.format(port=port), encoding="utf-8")
    words = ("query", "listens.toml", "--status", ":0")
    with jobs.running(tmp_path, *words) as child, chromium() as browser:
        found = re.fullmatch(r"status page: (http://127\.0\.0\.1:\d+/)\n", child.stderr.readline())
        assert found is not None
        post = urllib.request.Request(f"http://127.0.0.1:{port}/", data=b'{"t": 1}\n')
        with pytest.raises(OSError):  # a web page's POST gets no answer
            urllib.request.urlopen(post, timeout=20)
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.sendall(b'{"t": 1, "k": "x"}\n{"t": 11, "k": "y"}\n{"t"')
        assert [child.stdout.readline() for _ in range(2)][1] == '1,"x",1\n'
        page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        watch = Watch()
        watch.listen(page)
        page.goto(found[1])
        page.wait_for_selector("text=1 broken off after rows", timeout=20_000)
        assert "Connections1 refused1 broken off after rows" in page.text_content("#tiles")
        assert watch.faults == []
        counts = asked(found[1])["status"]["connections"]
        assert counts == {"a": {"refused": 1, "broken": 1, "halves": 1}}
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
        assert "a: 1 connections refused, which gave no row, 1 broken off" in child.stderr.read()


# ── the server ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def server() -> Iterator[StatusServer]:
    board = Board("<job>", Status(), "count(5)", {})
    with StatusServer(Address.of(":0"), board) as found:
        yield found


def fetched(server: StatusServer, path: str, method: str = "GET", **headers: str) -> Any:
    host, _, port = server.url.removeprefix("http://").rstrip("/").rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=20)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHos"])
def test_half_open_requests_delay_nobody(server: StatusServer, said: bytes) -> None:
    """They come at once, as from a browser gone wild: the kernel must hold them until they are
    taken, and of too many that say nothing the oldest goes."""
    assert QUEUE_MAX > CONNECTIONS_MAX
    host, _, port = server.url.removeprefix("http://").rstrip("/").rpartition(":")
    held = []
    for _ in range(CONNECTIONS_MAX + 100):
        each = socket.socket()
        each.setblocking(False)
        assert each.connect_ex((host, int(port))) in (0, errno.EINPROGRESS)
        held.append(each)
    # Each has its connection at once; one that the kernel has left out would try again in a second.
    _, writable, _ = select.select([], held, [], 0.5)
    assert len(writable) == len(held)
    for each in held:
        with suppress(OSError):
            each.send(said)
    for _ in range(3):
        assert fetched(server, "/status.json")[0].status == 200
    assert len(server._server.held) <= CONNECTIONS_MAX  # type: ignore[attr-defined]
    for each in held:
        each.close()


def test_what_is_served(server: StatusServer) -> None:
    answer, page = fetched(server, "/")
    policy = answer.headers["Content-Security-Policy"]
    assert answer.status == 200 and policy == whole_page()[0]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert b"http" not in page.replace(b"http://www.w3.org/2000/svg", b"")
    answer, body = fetched(server, "/status.json")
    assert answer.headers["Content-Type"].startswith("application/json")
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert json.loads(body)["about"]["job"] == "<job>"
    assert [fetched(server, path)[0].status for path in ("/x", "/../etc", "/favicon.ico")] == [
        404, 404, 204,
    ]  # fmt: skip
    assert fetched(server, "/", "HEAD")[1] == b""
    assert fetched(server, "/", "POST")[0].status == 501


def test_names_that_point_here_get_nothing(server: StatusServer) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
        answer, body = fetched(server, "/status.json", Host=host)
        assert answer.status == 403 and b"job" not in body
    assert fetched(server, "/status.json", Host="localhost")[0].status == 200


@pytest.mark.parametrize(
    ("host", "given", "is_fine"),
    [
        ("[::1]:80", "::1", True), ("localhost", "127.0.0.1", True), ("x.lan", "x.lan", True),
        ("192.168.0.7:8080", "0.0.0.0", True), ("x.lan", "127.0.0.1", False),
        (socket.gethostname(), "0.0.0.0", True), (socket.gethostname() + ".x", "0.0.0.0", False),
    ],
)  # fmt: skip
def test_hosts(host: str, given: str, is_fine: bool) -> None:
    assert is_ours(host, given) is is_fine


def test_this_machine_alone_unless_a_host_is_given() -> None:
    assert Address.of("8080") == Address.of(":8080") == Address("127.0.0.1", 8080)
    assert Address.of("0.0.0.0:80") == Address("0.0.0.0", 80)
    with StatusServer(Address.of("[::1]:0"), Board("j", Status(), "", {})) as server:
        assert server.url.startswith("http://[::1]:") and fetched(server, "/")[0].status == 200
    with StatusServer(Address.of(":0"), Board("j", Status(), "", {})) as server:
        port = int(server.url.rstrip("/").rpartition(":")[2])
        with pytest.raises(StoreError, match=r"no page can be served there .*take another port"):
            StatusServer(Address("127.0.0.1", port), Board("j", Status(), "", {}))


def test_the_board_keeps_the_last_of_everything() -> None:
    board = Board("j", Status(), "", {})
    for epoch in range(1, EPOCHS_MAX + 10):
        board.add({"epoch": epoch, "bounds": "0 … 1", "rows_in": {"a": 5}})
        board.show(epoch, "0 … 1", pa.record_batch({"x": [epoch] * 15}))
        board.show(epoch, "0 … 1", pa.record_batch({"x": [epoch] * 15}))
        board.show(epoch, "0 … 1", pa.record_batch({"x": pa.array([], pa.int64())}))
    told = json.loads(json.dumps(board.told(), allow_nan=False))
    assert [e["epoch"] for e in told["epochs"]] == list(range(10, EPOCHS_MAX + 10))
    assert len(told["results"]) == RESULTS_MAX
    last = told["results"][-1]
    assert last["rows"] == [[str(EPOCHS_MAX + 9)]] * ROWS_MAX


def test_wide_results_are_cut() -> None:
    board = Board("j", Status(), "", {})
    wide = pa.record_batch({f"c{n}": ["y" * 5000, None] for n in range(300)})
    board.show(1, "x", wide)
    [told] = board.told()["results"]
    assert len(told["columns"]) == 40 and told["columns_left_out"] == 260
    assert len(told["rows"][0][0]) <= 200 and told["rows"][1][0] == "null"
    assert len(json.dumps(board.told())) < 50_000
