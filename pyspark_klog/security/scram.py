"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) as a state machine. No I/O.

The caller gives the nonce. User and password are encoded as UTF-8, without SASLprep, and channel
binding is not used; Kafka's Java client does the same. The password is never sent.
"""

import base64
import binascii
import hashlib
import hmac
import re
from enum import Enum

from pyspark_klog.security.errors import AuthenticationFailed, one_line
from pyspark_klog.security.secret import Secret

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

MIN_ITERATIONS = 4_096
"""The smallest accepted number of iterations: with fewer, somebody who recorded the exchange could
guess the password too easily (RFC 7677). Kafka's client has the same limit."""
MAX_ITERATIONS = 1_000_000
"""The largest accepted number of iterations: with more, a broker could keep this process busy.
Kafka creates credentials with at most 16384 iterations."""

_GS2_HEADER = "n,,"
_ATTRIBUTE = re.compile(r"([A-Za-z])=([^,]*)")
_COUNT = re.compile(r"[0-9]{1,9}")


class _State(Enum):
    BEGIN = "begin"
    FIRST_SENT = "first message sent"
    FINAL_SENT = "final message sent"
    DONE = "done"


class Scram:
    """The client's side of one authentication with the SCRAM mechanism ``mechanism``.

    ``nonce`` must be random printable ASCII without a comma.
    """

    def __init__(self, mechanism: str, username: str, password: Secret, nonce: str) -> None:
        self.name = mechanism
        self.username = username
        self._password = password
        self._nonce = nonce
        self._hash = HASHES[mechanism]
        self._state = _State.BEGIN
        self._first_bare = f"n={_escaped(username)},r={nonce}"
        self._server_signature = b""

    def initial(self) -> bytes:
        """Return the client's first message."""
        self._state = _State.FIRST_SENT
        return (_GS2_HEADER + self._first_bare).encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the client's final message after the server's first message.

        After the server's final message, which proves that the server knows the password, the
        result is None.

        :raises AuthenticationFailed: if the message is unexpected or malformed, reports an error,
            or does not prove that the server knows the password
        """
        if self._state is _State.FIRST_SENT:
            return self._final(_text(challenge))
        if self._state is _State.FINAL_SENT:
            self._verify(_text(challenge))
            return None
        raise AuthenticationFailed("the broker sent a SCRAM message that the client did not expect")

    def explain(self, text: str) -> str:
        """Return the broker's error text unchanged. The broker has never seen the password."""
        return text

    def _final(self, server_first: str) -> bytes:
        found = _attributes(server_first)
        nonce, salt, iterations = found.get("r", ""), found.get("s", ""), found.get("i", "")
        if "m" in found or not nonce or not salt or not iterations.isascii():
            raise AuthenticationFailed("the broker's first SCRAM message does not follow RFC 5802")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationFailed(
                "the broker did not add to the client's SCRAM nonce: check the broker's address"
            )
        is_count = _COUNT.fullmatch(iterations) is not None
        if not is_count or not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
            raise AuthenticationFailed(
                f"the broker asks for {one_line(iterations, 20)} iterations of SCRAM; expected "
                f"{MIN_ITERATIONS} to {MAX_ITERATIONS}: create the user's credentials again"
            )
        salted = hashlib.pbkdf2_hmac(
            self._hash, self._password.reveal().encode(), _unbase64(salt), int(iterations)
        )
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        binding = base64.b64encode(_GS2_HEADER.encode()).decode()
        without_proof = f"c={binding},r={nonce}"
        signed = ",".join((self._first_bare, server_first, without_proof)).encode()
        signature = self._hmac(stored_key, signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        self._state = _State.FINAL_SENT
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, server_final: str) -> None:
        found = _attributes(server_final)
        if "e" in found:
            raise AuthenticationFailed(f"the broker refused: {one_line(found['e'], 100)}")
        if not hmac.compare_digest(_unbase64(found.get("v", "")), self._server_signature):
            raise AuthenticationFailed(
                "the broker could not show that it knows the password: check the broker's address"
            )
        self._state = _State.DONE

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def _escaped(username: str) -> str:
    return username.replace("=", "=3D").replace(",", "=2C")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("the broker sent a SCRAM message that is not UTF-8") from None


def _attributes(message: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in message.split(","):
        match = _ATTRIBUTE.fullmatch(part)
        if match is not None:
            found.setdefault(match[1], match[2])
    return found


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AuthenticationFailed("the broker sent a SCRAM message with damaged base64") from None
