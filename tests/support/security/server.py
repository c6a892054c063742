"""A broker that the tests play: TLS and SASL are done here, other requests by a real broker.

Each connection has a thread, which takes one frame after the other. Requests that authenticate are
answered here, by code of its own (klog's client is the code under test). All others go to
``broker``, or, without one, get ApiVersions and Metadata responses that name this server alone.
"""

import base64
import contextlib
import hashlib
import hmac
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from pyspark_klog.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from pyspark_klog.protocol.apis.metadata import MetadataResponse, MetadataResponseBroker
from pyspark_klog.protocol.apis.sasl_authenticate import SaslAuthenticateResponse
from pyspark_klog.protocol.apis.sasl_handshake import SaslHandshakeResponse
from pyspark_klog.protocol.headers import (
    RequestHeader,
    decode_request,
    decode_response,
    encode_response,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Response

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class Refused(Exception):
    """The broker's error message when it does not accept a client."""


class PlayedBroker:
    """Listens on loopback, as ``localhost``, until the with statement ends.

    ``mechanisms`` are the SASL mechanisms, empty for none; ``users`` have passwords; ``token``
    checks a bearer token. ``session_lifetime_ms`` is sent to clients; a connection that has not
    authenticated again within this time is closed at its next request.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        mechanisms: tuple[str, ...] = (),
        users: Mapping[str, str] | None = None,
        token: Callable[[str], bool] = bool,
        session_lifetime_ms: int = 0,
        iterations: int = 4_096,
    ) -> None:
        self.tls = tls
        self.mechanisms = mechanisms
        self.users = dict(users or {})
        self.token = token
        self.session_lifetime_ms = session_lifetime_ms
        self.iterations = iterations
        self.broker: tuple[str, int] | None = None
        self.edit: Callable[[Response], None] | None = None
        """Changes replies of the broker behind to Metadata and Fetch, before they are handed on."""
        self.cut_after_bytes: int | None = None
        """Number of bytes of the broker's replies after which all connections are closed, once."""
        self.authentications: list[tuple[str, str]] = []
        """(mechanism, user or token) of each accepted client."""
        self.extensions: list[dict[str, str]] = []
        self.connections = 0
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        """``localhost:port``."""
        return f"localhost:{self.port}"

    def __enter__(self) -> "PlayedBroker":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # this wakes the thread that accepts
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(30)

    def cut(self) -> None:
        """End every connection."""
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def passes(self, count: int) -> int:
        """How many of the next bytes go to a client before connections are cut: mostly all."""
        with self._lock:
            left = self.cut_after_bytes
            if left is None:
                return count
            self.cut_after_bytes = left - count if left >= count else None
            return min(left, count)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(client.close)
            # The connection ends here when the client, the broker or TLS (by a refusal) ends it.
            with contextlib.suppress(OSError, EOFError):
                if self.tls is not None:
                    client.settimeout(30)
                    client = stack.enter_context(self.tls.wrap_socket(client, server_side=True))
                    client.settimeout(None)
                with self._lock:
                    self._open.add(client)
                stack.callback(self._forget, client)
                _Session(self, client, stack).run()

    def _forget(self, client: socket.socket) -> None:
        with self._lock:
            self._open.discard(client)


class _Session:
    """One connection's frames."""

    def __init__(
        self, server: PlayedBroker, client: socket.socket, stack: contextlib.ExitStack
    ) -> None:
        self._server = server
        self._client = client
        self._stack = stack
        self._behind: socket.socket | None = None
        self._is_trusted = not server.mechanisms
        self._steps: _Steps | None = None
        self._trusted_until = float("inf")

    def run(self) -> None:
        """Serve frames until either side ends the connection."""
        while True:
            frame = receive_frame(self._client)
            header, message = cast("tuple[RequestHeader, Any]", decode_request(frame))
            reply: Response | None = None
            if time.monotonic() > self._trusted_until:
                self._is_trusted = False
            if header.api_key == ApiKey.SASL_HANDSHAKE:
                reply = self._handshake(message.mechanism)
            elif header.api_key == ApiKey.SASL_AUTHENTICATE and self._steps is not None:
                reply = self._authenticate(bytes(message.auth_bytes))
            elif header.api_key != ApiKey.API_VERSIONS and not self._is_trusted:
                return  # as a broker does: it closes the connection
            elif self._server.broker is None:
                reply = self._canned(ApiKey(header.api_key))
            elif header.api_key == ApiKey.API_VERSIONS and self._server.mechanisms:
                reply = self._versions(frame, header.api_version)
            elif header.api_key in _EDITED and self._server.edit is not None:
                reply = self._edited(frame, ApiKey(header.api_key), header.api_version)
            if reply is None:
                self._relay(frame)
            else:
                answer = encode_response(header.correlation_id, reply, header.api_version)
                self._client.sendall(answer)
                if getattr(reply, "error_code", 0):
                    return

    def _handshake(self, mechanism: str) -> SaslHandshakeResponse:
        mechanisms = list(self._server.mechanisms)
        if not mechanisms:
            return SaslHandshakeResponse(error_code=34, mechanisms=[])
        if mechanism not in mechanisms:
            return SaslHandshakeResponse(error_code=33, mechanisms=mechanisms)
        self._is_trusted = False
        self._steps = _Steps(self._server, mechanism)
        return SaslHandshakeResponse(mechanisms=mechanisms)

    def _authenticate(self, message: bytes) -> SaslAuthenticateResponse:
        assert self._steps is not None
        try:
            answer, is_done = self._steps.handle_message(message)
        except Refused as refused:
            return SaslAuthenticateResponse(error_code=58, error_message=str(refused))
        lifetime_ms = 0
        if is_done:
            self._is_trusted, self._steps = True, None
            lifetime_ms = self._server.session_lifetime_ms
            if lifetime_ms:
                self._trusted_until = time.monotonic() + lifetime_ms / 1000
        return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms)

    def _canned(self, key: ApiKey) -> Response:
        if key is ApiKey.API_VERSIONS:
            rows = [ApiVersion(api_key=k, min_version=0, max_version=v) for k, v in _OWN_VERSIONS]
            return ApiVersionsResponse(api_keys=rows)
        node = MetadataResponseBroker(node_id=0, host="localhost", port=self._server.port)
        return MetadataResponse(brokers=[node], cluster_id="played", controller_id=0)

    def _versions(self, frame: bytes, version: int) -> Response | None:
        """The broker's versions, and those of the SASL APIs, which the broker lacks."""
        behind = self._ask(frame)
        reply = decode_response(receive_frame(behind), ApiKey.API_VERSIONS, version)
        assert isinstance(reply, ApiVersionsResponse)
        own = {ApiKey.SASL_HANDSHAKE: 1, ApiKey.SASL_AUTHENTICATE: 2}
        rows = [row for row in reply.api_keys if row.api_key not in own]
        rows += [ApiVersion(api_key=k, min_version=0, max_version=v) for k, v in own.items()]
        reply.api_keys = rows
        return reply

    def _edited(self, frame: bytes, key: ApiKey, version: int) -> Response:
        assert self._server.edit is not None
        reply = decode_response(receive_frame(self._ask(frame)), key, version)
        self._server.edit(reply)
        return reply

    def _ask(self, frame: bytes) -> socket.socket:
        """Send a request to the broker; the caller receives the reply from the returned socket."""
        if self._behind is None:
            assert self._server.broker is not None
            self._behind = self._stack.enter_context(socket.create_connection(self._server.broker))
        self._behind.sendall(len(frame).to_bytes(4, "big") + frame)
        return self._behind

    def _relay(self, frame: bytes) -> None:
        behind = self._ask(frame)
        size = receive(behind, 4)
        self._client.sendall(size)
        left = int.from_bytes(size, "big")
        while left:
            part = behind.recv(min(left, 1 << 18))
            if not part:
                raise EOFError
            may_send = self._server.passes(len(part))
            self._client.sendall(part[:may_send])
            if may_send < len(part):
                self._server.cut()
            left -= len(part)


_EDITED = (ApiKey.METADATA, ApiKey.FETCH)
_OWN_VERSIONS = ((18, 3), (3, 8), (17, 1), (36, 2))


class _Steps:
    """The broker's side of one exchange."""

    def __init__(self, server: PlayedBroker, mechanism: str) -> None:
        self._server = server
        self._mechanism = mechanism
        self._user = ""
        self._first = ""
        self._server_first = ""
        self._token_refused = False

    def handle_message(self, message: bytes) -> tuple[bytes, bool]:
        """Return the response to a message, and whether it accepts the client."""
        if self._mechanism == "PLAIN":
            return self._plain(message)
        if self._mechanism == "OAUTHBEARER":
            return self._token(message)
        return self._scram(message.decode())

    def _accept(self, who: str) -> None:
        self._server.authentications.append((self._mechanism, who))

    def _plain(self, message: bytes) -> tuple[bytes, bool]:
        other, user, password = message.decode().split("\0")
        if other not in ("", user) or self._server.users.get(user) != password:
            raise Refused("Authentication failed: Invalid username or password")
        self._accept(user)
        return b"", True

    def _token(self, message: bytes) -> tuple[bytes, bool]:
        if self._token_refused:
            raise Refused('{"status":"invalid_token"}')
        header, *pairs = message.decode().split("\x01")
        assert header == "n,,"
        values = dict(pair.split("=", 1) for pair in pairs if pair)
        scheme, _, token = values.pop("auth").partition(" ")
        if scheme != "Bearer" or not self._server.token(token):
            self._token_refused = True
            return b'{"status":"invalid_token"}', False
        self._accept(token)
        self._server.extensions.append(values)
        return b"", True

    def _scram(self, message: str) -> tuple[bytes, bool]:
        if not self._first:
            assert message.startswith("n,,")
            self._first = message.removeprefix("n,,")
            user, nonce = self._first.split(",")[:2]
            self._user = user.removeprefix("n=").replace("=2C", ",").replace("=3D", "=")
            mine = base64.b64encode(os.urandom(12)).decode()
            salt = base64.b64encode(b"salt of a test").decode()
            self._server_first = f"{nonce}{mine},s={salt},i={self._server.iterations}"
            return self._server_first.encode(), False
        without_proof, _, proof = message.rpartition(",p=")
        signed = f"{self._first},{self._server_first},{without_proof}".encode()
        name = _HASHES[self._mechanism]
        password = self._server.users.get(self._user)
        if password is None:
            raise Refused("Authentication failed during authentication due to invalid credentials")
        salted = hashlib.pbkdf2_hmac(
            name, password.encode(), b"salt of a test", self._server.iterations
        )
        client_key = hmac.digest(salted, b"Client Key", name)
        stored = hashlib.new(name, client_key).digest()
        signature = hmac.digest(stored, signed, name)
        shown = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.new(name, shown).digest() != stored:
            raise Refused(
                "Authentication failed during authentication due to invalid credentials with SASL "
                f"mechanism {self._mechanism}"
            )
        verifier = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
        self._accept(self._user)
        return f"v={base64.b64encode(verifier).decode()}".encode(), True


def server_context(
    pem_file: Path, *, clients_of: Path | None = None, newest: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    """A broker's side of TLS; clients must show a certificate of ``clients_of`` if it is given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem_file)
    if clients_of is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients_of)
    if newest is not None:
        context.maximum_version = newest
    return context


def receive_frame(source: socket.socket) -> bytes:
    """Return one frame without its size. Raises EOFError at the end."""
    return receive(source, int.from_bytes(receive(source, 4), "big"))


def receive(source: socket.socket, count: int) -> bytes:
    """Return ``size`` bytes. Raises EOFError at the end."""
    parts = bytearray()
    while len(parts) < count:
        part = source.recv(min(count - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
