"""The HTTP server of the metrics endpoint, which no peer can hold up or make large.

Each connection has a thread, one request and CONNECTION_S for both its question and the answer;
then it is ended, whatever the peer does. CONNECTIONS_MAX are open at a time: one more is closed at
once. Where the system has no file for a new one (EMFILE), taking more waits for BACK_OFF_S.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

CONNECTIONS_MAX = 32
CONNECTION_S = 5.0  # a scrape takes milliseconds
BACK_OFF_S = 0.5
ANSWER_S = 2.0  # for the answers under way when the endpoint closes


class Silent(WSGIRequestHandler):
    """Logs no requests."""

    def log_message(self, *_: Any) -> None:
        """Nothing."""


class Connection(NamedTuple):
    """One that is being answered; until: seconds of the monotonic clock."""

    thread: threading.Thread
    request: socket.socket
    until: float

    def end(self) -> None:
        """Its thread comes to its end: what it waits for on the socket fails."""
        with suppress(OSError):
            self.request.shutdown(socket.SHUT_RDWR)


class ScrapeServer(ThreadingMixIn, WSGIServer):
    """Answers by the WSGI program `app`, in threads of its own, until `close`.

    refused: called for each connection that is closed at once, as too many are open. OSError where
    the address cannot be had.
    """

    request_queue_size = CONNECTIONS_MAX  # of those that came at once, before they are looked at

    def __init__(self, host: str, port: int, app: Any, refused: Callable[[], None]) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, *_, address = found[0]
        super().__init__(address, Silent)
        self.set_app(app)
        self.open: list[Connection] = []
        self._refused = refused
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    def get_request(self) -> tuple[socket.socket, Any]:
        """The next connection; OSError, after a pause, where the system gives none: it would be
        asked again at once, and for ever."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(BACK_OFF_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers in a thread, which `close` knows of and the end of Python does not."""
        self.open = [other for other in self.open if other.thread.is_alive()]
        if len(self.open) >= CONNECTIONS_MAX:
            self._refused()
            self.shutdown_request(request)
            return
        work, until = (request, client_address), time.monotonic() + CONNECTION_S
        thread = threading.Thread(target=self.process_request_thread, args=work, daemon=True)
        thread.start()
        self.open.append(Connection(thread, request, until))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tells on standard error what went wrong here; a peer that breaks off is no news."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def service_actions(self) -> None:
        """Twice a second, and after each new connection: ends those whose time is up."""
        now = time.monotonic()
        for connection in self.open:
            if now >= connection.until:
                connection.end()

    def close(self) -> None:
        """Takes no more, gives the answers under way ANSWER_S, and ends the others. Twice is
        fine."""
        self.shutdown()
        self.server_close()
        self._thread.join()
        until = time.monotonic() + ANSWER_S
        while self.open:
            connection = self.open.pop()
            connection.thread.join(max(until - time.monotonic(), 0.0))
            connection.end()
