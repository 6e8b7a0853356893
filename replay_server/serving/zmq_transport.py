"""`zmq+tcp://`: ZeroMQ sockets made, guarded and closed with pyzmq; the core moves the bytes.

A server with keys binds a ROUTER, a client connects a DEALER, each in a context of its own; a
server without keys needs none of this (native/transport/transport_zmtp.h). The core is given
the socket and the addresses of libzmq's own calls (native/transport/transport_zmq.h) and never
needs Python's lock; here is what happens once: limits, keys, waiting for the connection, and why
there is none.

A `Carrier` is strongly held from its opening to `close`, which the `Link` or `Service` that uses it
calls after its own end: never the garbage collector, which knows no order. In a forked child it is
left alone. A context ends once all its sockets are closed, and until then waits: so a carrier has
the list of them, and Ctrl-C in the midst of pyzmq leaves no socket that is not in it.

CURVE: a server with a secret key lets in the clients whose public keys lie in a folder, nobody
else; a client proves its own key and checks the server's. Keys are files in pyzmq's format, made by
`replay-server keygen`; only their paths travel with a pickled client.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _native
from .._native import Deadline, Link, ffi, lib
from ..errors import ConfigError, NotAuthorised, ReplayError, Timeout, TransportError

SCHEME = "zmq+tcp:"
RECONNECT_MS, RECONNECT_MAX_MS = 50, 1000
HEARTBEAT_MS, SILENCE_MS = 2000, 10_000
HANDSHAKE_MS = 10_000
CURVE_BYTES = 33  # with keys a datagram is longer by these: a command's name, a nonce, a tag, flags
LINGER_MS = 100  # a client's goodbye has so long to leave, where the network does not take it
GUARD_S = 1.0  # for the guard's thread to begin, where Ctrl-C came as it did
LEAST_S = 0.05  # for the session, however long the connection took
SPIN_US = 1  # an answer comes through threads of libzmq's, which want the core
LINK = {
    "spin_us": SPIN_US,
    "retry_us_min": 200_000,  # TCP repeats what the network lost; this is for reconnections
}
CALLS = (
    *("msg_init", "msg_init_size", "msg_data", "msg_size", "msg_more"),
    *("msg_recv", "msg_send", "msg_close", "getsockopt"),
)
SERVER_KEY, SECRET_KEY = "REPLAY_CURVE_SERVER_KEY", "REPLAY_CURVE_SECRET_KEY"
KEYGEN = "`replay-server keygen FOLDER` makes both ends' keys"

_open: set[Carrier] = set()


def is_url(url: str) -> bool:
    """Whether this address is one of ours."""
    return url.startswith(SCHEME)


@dataclass(frozen=True)
class ServerKeys:
    """Files: the server's secret key, and the folder of public keys that are let in."""

    secret: str
    clients: str


@dataclass(frozen=True)
class ClientKeys:
    """Files: the server's public key, and this client's secret one."""

    server: str
    secret: str


def server_keys(secret: str, clients: str) -> ServerKeys | None:
    """The key files given to a server; None: no keys. ConfigError where one of them is missing."""
    if bool(secret) != bool(clients):
        have, lack = ("curve_secret_key", "curve_clients")[:: 1 if secret else -1]
        raise ConfigError(f"{have} is given without {lack}, and lets nobody in; {KEYGEN}")
    return ServerKeys(secret, clients) if secret else None


def client_keys(server: str | None, secret: str | None) -> ClientKeys | None:
    """The key files given to a client, by arguments or else the environment; None: no keys."""
    server = os.environ.get(SERVER_KEY, "") if server is None else str(server)
    secret = os.environ.get(SECRET_KEY, "") if secret is None else str(secret)
    if bool(server) != bool(secret):
        have, lack = ("curve_server_key", "curve_secret_key")[:: 1 if server else -1]
        raise ConfigError(f"{have} is given without {lack}; {KEYGEN}")
    return ClientKeys(server, secret) if server else None


def _zmq(url: str) -> Any:
    """The module; TransportError with what to install where it is missing."""
    try:
        import zmq
    except ImportError as error:
        raise TransportError(
            f"{url}: ZeroMQ needs the package pyzmq, which is not installed here: "
            "pip install 'replay-server[zmq]', or use udp://"
        ) from error
    return zmq


def _calls(url: str) -> dict[str, Any]:
    """{name: address} of libzmq's calls, out of the library that pyzmq loaded."""
    try:
        from zmq.backend.cython import _zmq as backend

        library = ctypes.CDLL(backend.__file__)
        found = {name: getattr(library, f"zmq_{name}") for name in CALLS}
    except (ImportError, OSError, AttributeError) as error:
        raise TransportError(
            f"{url}: this pyzmq does not show libzmq's calls ({error}): "
            "install a wheel of pyzmq 26 or newer for CPython, or use udp://"
        ) from error
    return {name: ctypes.cast(call, ctypes.c_void_p).value for name, call in found.items()}


def _context(zmq: Any, made: list[Any]) -> Any:
    """A context whose sockets, also those that pyzmq asks for itself, are in `made` before libzmq
    makes them. A context's own list has them later: Ctrl-C may come in between."""

    class Socket(zmq.Socket):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            made.append(self)
            super().__init__(*arguments, **named)

    class Context(zmq.Context):
        def socket(self, kind: int, socket_class: Any = None, **named: Any) -> Any:
            return super().socket(kind, Socket, **named)

    return Context()


class Carrier:
    """A socket, its context, and its description for the core, `raw`: opened by `bind` or
    `connect`. Whoever makes it closes it where anything is raised until the core has it."""

    raw: Any
    socket: Any

    def __init__(self, url: str) -> None:
        self.url, self._process = url, os.getpid()
        self.guard: Any = None
        self.linger_ms = 0  # until there is a connection
        self.context: Any = None
        self._sockets: list[Any] = []

    def open(self, kind: str) -> None:
        """Makes the socket, of this kind of libzmq's."""
        zmq = _zmq(self.url)
        calls = _calls(self.url)
        _open.add(self)
        self.context = _context(zmq, self._sockets)
        self.socket = self.context.socket(getattr(zmq, kind))
        self.socket.linger = 0
        for name, value in {
            "SNDHWM": lib.RP_ZMQ_QUEUE_MAX,
            "RCVHWM": lib.RP_ZMQ_QUEUE_MAX,
            "MAXMSGSIZE": lib.RP_MTU_MAX + CURVE_BYTES,
            "HANDSHAKE_IVL": HANDSHAKE_MS,
            "TCP_KEEPALIVE": 1,
        }.items():
            self.socket.setsockopt(getattr(zmq, name), value)
        self.raw = ffi.new("struct rp_zmq_socket *")
        self.raw.socket = ffi.cast("void *", self.socket.underlying)
        self.raw.descriptor = self.socket.getsockopt(zmq.FD)
        for name, address in calls.items():
            field = dict(ffi.typeof("struct rp_zmq_socket").fields)[name].type
            setattr(self.raw, name, ffi.cast(field, address))

    def endpoint(self, *, serve: bool, guarded: bool) -> str:
        """The url's, its host resolved; raises where the address is none, or unprotected."""
        endpoint, sentence = ffi.new("char[]", lib.RP_ZMQ_ENDPOINT_BYTES), _native.error_text()
        text = self.url.encode()
        status = lib.rp_zmq_endpoint(text, int(serve), int(guarded), endpoint, sentence)
        what = "serving on" if serve else "connecting to"
        _native.opened(status, sentence, f"{what} {self.url}")
        found = ffi.string(endpoint).decode()
        self.socket.ipv6 = "[" in found
        return found

    def describe(self, endpoint: str) -> None:
        """Tells the core where the socket is."""
        self.raw.endpoint = endpoint.encode()

    def close(self) -> None:
        """Ends socket and context; what a client still has queued, its goodbye, may yet leave in
        LINGER_MS. Twice is fine."""
        if self not in _open or os.getpid() != self._process:
            return
        self._stop_guard()
        for each in self._sockets:
            each.close(self.linger_ms)
        if self.context is not None:
            self.context.term()
        _open.discard(self)

    def _stop_guard(self) -> None:
        """Ends the guard's thread; one that Ctrl-C left half started has none to be told."""
        guard, self.guard = self.guard, None
        if guard is None:
            return
        if guard.thread is None or not guard.thread.started.wait(GUARD_S):
            guard.pipe = None  # what is sent there would wait for whoever takes it, for ever
        guard.stop()


def bind(carrier: Carrier, keys: ServerKeys) -> None:
    """Makes it a ROUTER that serves who has a key. Raises ReplayErrors.

    libzmq bounds no message of many frames, so that strangers never get as far as that here: a
    server without keys speaks the protocol itself (native/transport/transport_zmtp.c).
    """
    url, zmq = carrier.url, _zmq(carrier.url)
    carrier.open("ROUTER")
    endpoint = carrier.endpoint(serve=True, guarded=True)
    carrier.socket.router_mandatory = 1  # a peer that is gone, or slow, is an error, and counted
    _guard(carrier, keys)
    try:
        carrier.socket.bind(endpoint)
    except zmq.ZMQError as error:
        taken = "the port is taken by another program, or by an earlier server of this one: "
        taken += "close that, choose another port, or 0 for any"
        why = taken if error.errno == zmq.EADDRINUSE else f"cannot bind: {error.strerror}"
        raise TransportError(f"serving on {url}: {why}") from error
    carrier.describe(carrier.socket.last_endpoint.rstrip(b"\0").decode())


def _guard(carrier: Carrier, keys: ServerKeys) -> None:
    """CURVE at a server: a thread of pyzmq's that lets in whose public key is in the folder."""
    from zmq.auth import load_certificates
    from zmq.auth.thread import ThreadAuthenticator

    public, secret = _secret(keys.secret)
    if not Path(keys.clients).is_dir():
        raise ConfigError(f"curve_clients: there is no folder {keys.clients}; {KEYGEN}")
    if not load_certificates(keys.clients):
        raise ConfigError(f"curve_clients: {keys.clients} holds no public keys (*.key); {KEYGEN}")
    carrier.guard = ThreadAuthenticator(carrier.context)
    carrier.guard.start()
    carrier.guard.configure_curve(domain="*", location=keys.clients)
    carrier.socket.curve_server = True
    carrier.socket.curve_publickey, carrier.socket.curve_secretkey = public, secret


def _certificate(path: str, what: str) -> tuple[bytes, bytes | None]:
    from zmq.auth import load_certificate

    if not os.path.exists(path):
        raise ConfigError(f"{what}: there is no file {path}; {KEYGEN}")
    try:
        return load_certificate(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{what}: {path} is no key file ({why}); {KEYGEN}") from error


def _secret(path: str) -> tuple[bytes, bytes]:
    """(public, secret) of a secret key's file; the error for a public one names the right file."""
    public, secret = _certificate(path, "curve_secret_key")
    if secret is not None:
        return public, secret
    name = f"{Path(path).stem}.key_secret"
    beside = [folder / name for folder in (Path(path).parent, Path(path).parent.parent)]
    give = next((f"give {other}" for other in beside if other.exists()), f"give its {name}")
    raise ConfigError(
        f"curve_secret_key: {path} is the public half of a key and holds no secret one; {give}"
    )


def connect(carrier: Carrier, timeout: float, keys: ClientKeys | None) -> None:
    """Makes it a DEALER with a connection; Timeout or NotAuthorised says why there is none."""
    zmq = _zmq(carrier.url)
    carrier.open("DEALER")
    endpoint = carrier.endpoint(serve=False, guarded=True)
    for name, value in {
        "IMMEDIATE": 0,  # 1 would drop what has come and was not read when a connection ends
        "RECONNECT_IVL": RECONNECT_MS,
        "RECONNECT_IVL_MAX": RECONNECT_MAX_MS,
        "HEARTBEAT_IVL": HEARTBEAT_MS,
        "HEARTBEAT_TIMEOUT": SILENCE_MS,
        "HEARTBEAT_TTL": 3 * SILENCE_MS,
    }.items():
        carrier.socket.setsockopt(getattr(zmq, name), value)
    if keys is not None:
        server, _ = _certificate(keys.server, "curve_server_key")
        public, secret = _secret(keys.secret)
        carrier.socket.curve_serverkey = server
        carrier.socket.curve_publickey, carrier.socket.curve_secretkey = public, secret
    carrier.describe(endpoint)
    monitor = carrier.socket.get_monitor_socket()
    carrier.socket.connect(endpoint)
    _await_connection(zmq, carrier, monitor, timeout, keys)
    carrier.socket.disable_monitor()
    monitor.close()
    carrier.linger_ms = LINGER_MS


def _await_connection(
    zmq: Any, carrier: Carrier, monitor: Any, timeout: float, keys: ClientKeys | None
) -> None:
    """Until handshake and, with keys, their exchange are done; the socket takes messages before."""
    from zmq.utils.monitor import recv_monitor_message

    deadline, seen = Deadline(timeout), set()
    while True:
        if monitor.poll(int(deadline.seconds() * 1000)):
            seen.add(recv_monitor_message(monitor)["event"])
        if zmq.Event.HANDSHAKE_SUCCEEDED in seen:
            return
        if not deadline.left() or zmq.Event.HANDSHAKE_FAILED_AUTH in seen:
            raise _no_connection(zmq, carrier.url, seen, keys)


def _no_connection(zmq: Any, url: str, seen: Iterable[int], keys: ClientKeys | None) -> ReplayError:
    """Why there is no connection, as far as the socket's events say."""
    what, seen = f"connecting to {url}", set(seen)
    if zmq.Event.HANDSHAKE_FAILED_AUTH in seen:
        return NotAuthorised(
            f"{what}: the server does not know this client's key: put its public key into the "
            "server's curve_clients folder and restart the server"
        )
    if keys is not None and seen & {
        zmq.Event.HANDSHAKE_FAILED_NO_DETAIL,
        zmq.Event.HANDSHAKE_FAILED_PROTOCOL,
    }:
        return NotAuthorised(
            f"{what}: the handshake failed: is {keys.server} this server's public key, and does "
            "it serve with keys at all (curve_secret_key)?"
        )
    if zmq.Event.HANDSHAKE_FAILED_PROTOCOL in seen:
        return NotAuthorised(
            f"{what}: the server wants keys: give curve_server_key and curve_secret_key, or set "
            f"{SERVER_KEY} and {SECRET_KEY}"
        )
    if zmq.Event.CONNECTED in seen:
        return Timeout(
            f"{what}: what listens there did not finish the handshake: it is no replay server on "
            "zmq+tcp://, or every place for a connection is in use, or it is far away, or it wants "
            "keys (curve_server_key)"
        )
    return Timeout(
        f"{what}: nobody accepts connections there; is the server running at this address?"
    )


def open_link(
    url: str, timeout: float, server_key: str | None, secret_key: str | None, **options: Any
) -> Link:
    """A session over a connection of its own; both within `timeout` seconds."""
    deadline, carrier = Deadline(timeout), Carrier(url)
    try:
        connect(carrier, timeout, client_keys(server_key, secret_key))
        left = max(deadline.seconds(), LEAST_S)
        try:
            return Link(url, left, carrier, zmq=carrier.raw, **LINK, **options)
        except Timeout as error:
            raise Timeout(
                f"connecting to {url}: what listens there takes connections but does not answer; "
                "is it a replay server on zmq+tcp://?"
            ) from error
    except BaseException:
        carrier.close()
        raise


def keygen(folder: Path, clients: Iterable[str]) -> list[Path]:
    """Key files of one server and its clients in `folder`; ConfigError where a client's is there.

    A server's key that is there is kept, so that clients can be added to it later.
    server.key_secret (serve), server.key (clients), NAME.key_secret (client), clients/NAME.key.
    """
    _zmq(SCHEME + "//")
    from zmq.auth import create_certificates

    names = ["server", *clients]
    wanted = {name: folder / f"{name}.key_secret" for name in names}
    if len(wanted) < len(names):
        raise ConfigError(f"keygen: every name once, and none is 'server'; got {names[1:]}")
    for name, path in wanted.items():
        if not name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(f"keygen: {name!r} is no name of letters, digits, - and _")
        if name != "server" and path.exists():
            raise ConfigError(f"keygen: {path} exists already; remove it, or choose other names")
    if wanted["server"].exists():
        if not (folder / "server.key").exists():
            raise ConfigError(f"keygen: {folder} has server.key_secret and no server.key beside it")
        del wanted["server"]
    try:
        (folder / "clients").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"keygen: {folder / 'clients'} cannot be made: {error.strerror}"
        ) from error
    made = []
    before = os.umask(0o077)
    try:
        for name, path in wanted.items():
            public = Path(create_certificates(folder, name)[0])
            if name != "server":
                public = public.replace(folder / "clients" / public.name)
            public.chmod(0o644)
            made += [path, public]
    finally:
        os.umask(before)
    return made
