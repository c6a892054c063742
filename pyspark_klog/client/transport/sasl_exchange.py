"""Authentication within Kafka's protocol: SaslHandshake v1, then SaslAuthenticate. Pure.

`SaslExchange` makes the requests and handles the responses; `Connection` sends them, first
when the connection begins and again before the session ends (KIP-368).
"""

from typing import Protocol

from pyspark_klog.client.errors import AuthenticationFailed, broker_error, error_code, one_line
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from pyspark_klog.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

HANDSHAKE_VERSION = 1
"""The version of SaslHandshake that this client sends. After SaslHandshake 1 (Kafka 1.0) the client
sends SaslAuthenticate requests. After SaslHandshake 0 it would send bare SASL tokens, without the
headers of a Kafka request."""
REAUTHENTICATE_AT = 0.85
"""The part of a SASL session's lifetime, from its start, after which this client authenticates
again. Java's client takes a random part from 0.85 to 0.95."""


class Mechanism(Protocol):
    """The client's side of one SASL exchange; each authentication needs a new object."""

    @property
    def name(self) -> str:
        """The mechanism's name in Kafka, as in sasl.mechanism."""

    @property
    def username(self) -> str:
        """The user's name, for the messages of errors; empty if the mechanism has none."""

    def initial(self) -> bytes:
        """The client's first message of the SASL exchange."""

    def respond(self, challenge: bytes) -> bytes | None:
        """The client's response to the broker's message; None if the exchange is over.

        :raises AuthenticationFailed: if the broker's message is wrong; the error's text is a clause
            that calls the broker "it"
        """

    def explain(self, text: str) -> str:
        """Why the broker refused the authentication: ``text``, the broker's error message, without
        secrets and with the reason that an earlier message of the broker gave, if any."""


class SaslExchange:
    """The requests of one authentication with a broker; errors name ``peer``, its address."""

    def __init__(self, mechanism: Mechanism, peer: str) -> None:
        self.mechanism = mechanism
        self.peer = peer
        self.session_lifetime_ms = 0
        """For how many ms after the exchange the broker accepts requests until the client must
        authenticate again; 0: for ever. Known at the end of the exchange."""

    def handshake_request(self) -> SaslHandshakeRequest:
        """The first request of the exchange, SaslHandshake."""
        return SaslHandshakeRequest(mechanism=self.mechanism.name)

    def on_handshake(self, response: SaslHandshakeResponse) -> SaslAuthenticateRequest:
        """The request that follows the response to SaslHandshake.

        :raises AuthenticationFailed: if the broker does not have the mechanism, or has no SASL
        :raises BrokerError: for any other error code
        """
        code = error_code(response.error_code)
        if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            has = one_line(", ".join(sorted(response.mechanisms[:20]))) or "none"
            raise AuthenticationFailed(
                f"{self.peer} does not have SASL mechanism {self.mechanism.name}; it has {has}: "
                "set sasl.mechanism to one of these, or enable it in the broker's listener"
            )
        if code is ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationFailed(
                f"{self.peer} is a listener without SASL: set security.protocol to PLAINTEXT "
                "(SSL if it has TLS), or use the port of a listener with SASL"
            )
        if code is not ErrorCode.NONE:
            raise broker_error(code, f"SASL handshake with {self.peer}")
        return SaslAuthenticateRequest(auth_bytes=self.mechanism.initial())

    def on_authenticate(self, response: SaslAuthenticateResponse) -> SaslAuthenticateRequest | None:
        """The request that follows a response to SaslAuthenticate; None if the broker has accepted
        this client.

        :raises AuthenticationFailed: if the broker has refused the client, or does not follow the
            mechanism
        :raises BrokerError: for an error code that is retriable
        """
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            raise self._refused(code, response.error_message or "")
        try:
            answer = self.mechanism.respond(bytes(response.auth_bytes))
        except AuthenticationFailed as error:
            raise AuthenticationFailed(
                f"SASL {self.mechanism.name} with {self.peer} failed: {error}"
            ) from None
        if answer is None:
            self.session_lifetime_ms = max(response.session_lifetime_ms, 0)
            return None
        return SaslAuthenticateRequest(auth_bytes=answer)

    def _refused(self, code: ErrorCode, text: str) -> Exception:
        if code.retriable:
            return broker_error(code, f"SASL authentication with {self.peer}")
        name, user = self.mechanism.name, self.mechanism.username
        given = f"{name} for user {user!r}" if user else name
        reason = one_line(self.mechanism.explain(text)) or code.message
        check = "user and password in sasl.jaas.config" if user else "where the token comes from"
        return AuthenticationFailed(f"{self.peer} refused SASL {given}: {reason}; check {check}")
