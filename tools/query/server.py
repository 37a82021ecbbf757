"""The status page of a running query: a page and one JSON answer, served by threads.

    browser ──GET /──▶ page (script and style inside)        nothing is loaded from anywhere else
       └──GET /status.json, once a second──▶ board.told()

The query never waits for it: threads read what the query has put on the board (`board.py`).

* It listens on this machine only, unless a host is given.
* A request must name a host that is an address or this machine: a page of somebody else's, whose
  name points here all of a sudden, gets nothing.
* Names and values may come from anybody.  They travel as JSON and are written as text, and the
  page's policy lets only its own script and style run, by their SHA-256.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import re
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from socketserver import TCPServer
from types import TracebackType
from typing import Any, ClassVar

from matwin.storage.errors import InputError, StoreError

from .board import Board

LOOPBACK = "127.0.0.1"
SECONDS_MAX = 10
"""How long a request may take to come."""
CONNECTIONS_MAX = 128
"""So many have a thread; one more, and the oldest goes, which has said nothing for so long."""
QUEUE_MAX = 1024
"""Connections that the kernel holds until they are taken: with its usual five, the sixth at once
would try again after a second, then three, then seven."""
_POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]]*):)?(?P<port>\d{1,5})")


@dataclass(frozen=True, slots=True)
class Address:
    """Where the page is served."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> Address:
        """``:8080`` is this machine alone; another host has to be named.

        >>> Address.of(":8080"), Address.of("[::1]:80").host
        (Address(host='127.0.0.1', port=8080), '::1')
        """
        found = _ADDRESS.fullmatch(text)
        if found is None or int(found["port"]) > 65535:
            raise InputError(
                f"--status {text!r} is no address; write --status :8080 for this machine alone, "
                ":0 for any free port, or HOST:8080"
            )
        host = (found["host"] or "").strip("[]")
        return cls(host or LOOPBACK, int(found["port"]))


class StatusServer:
    """The page of a board, as a context."""

    def __init__(self, address: Address, board: Board) -> None:
        try:
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            self._server = _server(family, address, board)
        except (OSError, UnicodeError) as e:
            raise StoreError(
                f"--status {address.host}:{address.port}: no page can be served there "
                f"({getattr(e, 'strerror', None) or e}); take another port, or :0 for any"
            ) from e
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1},
            name="matwin status page", daemon=True,
        )  # fmt: skip

    @property
    def url(self) -> str:
        """Where the page is."""
        host, port = self._server.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}/"

    def __enter__(self) -> StatusServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def _server(family: socket.AddressFamily, address: Address, board: Board) -> ThreadingHTTPServer:
    class Server(ThreadingHTTPServer):
        address_family = family
        daemon_threads = True
        request_queue_size = QUEUE_MAX
        block_on_close = False  # a browser that holds its connection holds nobody up
        held: ClassVar[dict[Any, None]] = {}
        lock: ClassVar[threading.Lock] = threading.Lock()

        def server_bind(self) -> None:
            """Without asking name servers what this machine is called."""
            TCPServer.server_bind(self)
            self.server_name, self.server_port = str(self.server_address[0]), 0

        def process_request(self, request: Any, client_address: Any) -> None:
            """In a thread of its own; of too many that wait, the oldest goes."""
            with self.lock:
                self.held[request] = None
                oldest = next(iter(self.held)) if len(self.held) > CONNECTIONS_MAX else None
                self.held.pop(oldest, None)
            if oldest is not None:
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            super().process_request(request, client_address)

        def shutdown_request(self, request: Any) -> None:
            """It has been answered, or has come to nothing."""
            with self.lock:
                self.held.pop(request, None)
            super().shutdown_request(request)

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that goes away is no news."""

    class Handler(_Handler):
        pass

    Handler.board, Handler.given_host = board, address.host
    return Server((address.host, address.port), Handler)


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    board: Board
    given_host: str
    timeout = SECONDS_MAX
    server_version = "matwin"
    sys_version = ""

    def do_GET(self) -> None:
        """The page, or the status."""
        if not is_ours(self.headers.get("Host", ""), self.given_host):
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"this page has no such name\n")
        elif self.path == "/":
            policy, page = whole_page()
            self._send(HTTPStatus.OK, "text/html", page, policy)
        elif self.path == "/status.json":
            text = json.dumps(self.board.told(), allow_nan=False)
            self._send(HTTPStatus.OK, "application/json", text.encode())
        elif self.path == "/favicon.ico":
            self._send(HTTPStatus.NO_CONTENT, "image/x-icon", b"")
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"there is / and /status.json\n")

    do_HEAD = do_GET

    def _send(self, code: HTTPStatus, kind: str, body: bytes, policy: str | None = None) -> None:
        self.send_response(code)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", policy or "default-src 'none'")
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


def is_ours(host: str, given: str) -> bool:
    """Whether a request's host is a name for this page that no name server can make up.

    >>> is_ours("127.0.0.1:80", "127.0.0.1"), is_ours("localhost:80", "127.0.0.1")
    (True, True)
    >>> is_ours("evil.example:80", "127.0.0.1"), is_ours("10.0.0.2:80", "0.0.0.0")
    (False, True)
    """
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    name = name.strip("[]").lower()
    if name in ("localhost", given.lower()):
        return True
    with suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return given != LOOPBACK and name == socket.gethostname().lower()


@cache
def whole_page() -> tuple[str, bytes]:
    """The policy and the page."""
    style, script = _resource("page.css"), _resource("page.js")
    policy = _POLICY.format(script=_digest(script), style=_digest(style))
    page = _resource("template.html").replace("{{style}}", style).replace("{{script}}", script)
    return policy, page.encode()


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _resource(name: str) -> str:
    return (files(__package__) / "page" / name).read_text(encoding="utf-8")
