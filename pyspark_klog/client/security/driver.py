"""TLS and SASL of one client's connections. A `BlockingClient` whose settings need them has one
`Security` object, which secures every connection that the client opens."""

import selectors
import socket

from pyspark_klog.client import chance
from pyspark_klog.client.errors import AuthenticationFailed, SettingError
from pyspark_klog.client.security.tls import Tls
from pyspark_klog.client.security.tls_link import TlsLink
from pyspark_klog.client.security.tokens import TokenSource
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.connection import Connection
from pyspark_klog.client.transport.sasl_exchange import Mechanism
from pyspark_klog.client.transport.socket_link import Link
from pyspark_klog.security.config import SecurityConfig
from pyspark_klog.security.oauthbearer import OAuthBearer
from pyspark_klog.security.sasl_config import PasswordFunction, PasswordLogin, SaslConfig
from pyspark_klog.security.sasl_plain import Plain
from pyspark_klog.security.scram import Scram
from pyspark_klog.security.secret import Secret


class Security:
    """Secures a client's connections; used only by the client's thread."""

    def __init__(self, config: SecurityConfig) -> None:
        self.config = config
        self.tls = Tls(config.tls) if config.tls else None
        self._sasl = config.sasl
        self._tokens: TokenSource | None = None

    def wrap(self, sock: socket.socket, host: str, peer: str) -> socket.socket:
        """The socket, after the TLS handshake if the client uses TLS.

        :raises TlsFailed, ConnectionFailed, SettingError: if the handshake fails or a TLS setting
            is wrong; the socket is closed then
        """
        return sock if self.tls is None else self.tls.wrap(sock, host, peer)

    def link(
        self,
        address: Address,
        connection: Connection,
        sock: socket.socket,
        selector: selectors.BaseSelector,
    ) -> Link:
        """The link that moves bytes over a socket that `wrap` returned."""
        if self.tls is None:
            return Link(address, connection, sock, selector)
        return TlsLink(address, connection, sock, selector, self.tls.config)

    def mechanism(self) -> Mechanism | None:
        """A new SASL exchange for one authentication; None without SASL.

        :raises AuthenticationFailed, SettingError: if there is no password or token
        """
        return None if self._sasl is None else self._new_mechanism(self._sasl)

    def _new_mechanism(self, sasl: SaslConfig) -> Mechanism:
        login = sasl.login
        if isinstance(login, PasswordLogin):
            return _by_password(login.mechanism, login.username, login.password)
        if isinstance(login, PasswordFunction):
            return _by_password(login.mechanism, *_ask_for_password(login))
        if self._tokens is None:
            self._tokens = TokenSource(login, sasl.renewal)
        return OAuthBearer(self._tokens.token())


def _by_password(mechanism: str, username: str, password: Secret) -> Mechanism:
    if mechanism == Plain.name:
        return Plain(username, password)
    return Scram(mechanism, username, password, chance.secret_text())


def _ask_for_password(login: PasswordFunction) -> tuple[str, Secret]:
    options = {name: value.reveal() for name, value in login.options.items()}
    function = login.function.load()
    try:
        given = function(options)
    except Exception as error:
        # Name only the error's type, because its text may contain a secret. A user who needs the
        # text can log it in ``function``, the user's own function that the setting names.
        raise AuthenticationFailed(
            f"{login.function.setting}: {login.function.name} raised {type(error).__name__}; it "
            "must give (user, password)"
        ) from None
    if (
        not isinstance(given, tuple)
        or len(given) != 2
        or not all(isinstance(part, str) for part in given)
    ):
        raise SettingError(
            f"{login.function.setting}: {login.function.name} gave {type(given).__name__}; "
            "expected (user, password), both text"
        )
    return given[0], Secret(given[1])
