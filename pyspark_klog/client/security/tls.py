"""TLS to a broker by OpenSSL: the context from the settings, the handshake, its errors."""

import contextlib
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyspark_klog.client.errors import ClientError, ConnectionFailed, SettingError, TlsFailed
from pyspark_klog.client.security.stores import own_key, trusted_certificates
from pyspark_klog.security.ciphers import openssl_names
from pyspark_klog.security.tls_config import Store, TlsConfig

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG")
"""The reasons in OpenSSL's errors that mean that the received bytes are not TLS."""
_NO_COMMON = (
    "ALERT_HANDSHAKE_FAILURE",
    "ALERT_PROTOCOL_VERSION",
    "ALERT_INSUFFICIENT_SECURITY",
    "UNSUPPORTED_PROTOCOL",
    "NO_PROTOCOLS_AVAILABLE",
    "NO_CIPHERS_AVAILABLE",
)
_EXPIRED, _NOT_YET, _OTHER_NAME, _OTHER_ADDRESS = 10, 9, 62, 64
"""OpenSSL's numbers (X509_V_ERR) for certificates that are expired, not yet valid, for another host
name, or for another IP address."""


class Tls:
    """Wraps sockets in TLS. The OpenSSL context is made on first use, and again when the files of
    the truststore or keystore have changed (certificates are renewed while a stream runs)."""

    def __init__(self, config: TlsConfig) -> None:
        self.config = config
        self._context: ssl.SSLContext | None = None
        self._stamp: tuple[object, ...] = ()

    def context(self) -> ssl.SSLContext:
        """The OpenSSL context for the settings and the current truststore and keystore files.

        :raises SettingError: naming the setting that is wrong
        """
        stamp = self._stores_stamp()
        if self._context is None or stamp != self._stamp:
            self._context, self._stamp = make_context(self.config), stamp
        return self._context

    def _stores_stamp(self) -> tuple[object, ...]:
        stamp: list[object] = []
        for store in (self.config.trust, self.config.own):
            if store is not None and store.location:
                with contextlib.suppress(OSError):
                    found = Path(store.location).stat()
                    stamp += [found.st_mtime_ns, found.st_size, found.st_ino]
        return tuple(stamp)

    def wrap(self, sock: socket.socket, host: str, peer: str) -> ssl.SSLSocket:
        """``sock`` after the TLS handshake, within the socket's timeout; on failure it is closed.

        ``host`` is the name that the certificate must have, unless the settings turn this check
        off; ``peer`` names the address in messages.

        :raises TlsFailed: if another attempt would probably fail in the same way
        :raises ConnectionFailed: if the connection ended or the time ran out
        :raises SettingError: if a TLS setting is wrong
        """
        try:
            context = self.context()
            try:
                wrapped = context.wrap_socket(
                    sock, server_hostname=host, do_handshake_on_connect=False
                )
            except ValueError:
                raise no_host_name(host, peer) from None
        except BaseException:
            sock.close()
            raise
        try:
            wrapped.do_handshake()
        except (OSError, ValueError) as error:
            wrapped.close()
            raise handshake_error(error, host, peer, self.config) from None
        return wrapped


def make_context(config: TlsConfig) -> ssl.SSLContext:
    """Make an OpenSSL context for a client from its TLS settings; if they name a function of the
    user (``config.engine``), return the context that this function makes.

    :raises SettingError: naming the setting that is wrong
    """
    if config.engine is not None:
        function = config.engine.load()
        try:
            made = function(dict(config.given))
        except Exception as error:
            # Name only the error's type, because its text may contain a secret. A user who needs
            # the text can log it in ``function``, the user's own function that the setting names.
            raise SettingError(
                f"{config.engine.setting}: {config.engine.name} raised {type(error).__name__}; it "
                "must give an ssl.SSLContext"
            ) from None
        if not isinstance(made, ssl.SSLContext):
            raise SettingError(
                f"{config.engine.setting}: {config.engine.name} gave {type(made).__name__}; "
                "expected an ssl.SSLContext"
            )
        return made
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.check_host_name
    context.options |= ssl.OP_NO_RENEGOTIATION  # brokers never ask for a renegotiation
    _set_versions(context, config)
    if config.trust is None:
        context.load_default_certs()
    else:
        _trust(context, config.trust)
    if config.own is not None:
        _load_own_certificate(context, config.own, config.prefix)
    return context


def _set_versions(context: ssl.SSLContext, config: TlsConfig) -> None:
    versions = list(config.versions)
    if config.cipher_suites:
        ciphers, versions = openssl_names(config.cipher_suites, versions, config.prefix)
        try:
            if ciphers:
                context.set_ciphers(":".join(ciphers))
        except ssl.SSLError:
            raise SettingError(
                f"{config.prefix}ssl.cipher.suites has none that {ssl.OPENSSL_VERSION} knows; "
                "expected names such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
            ) from None
    context.minimum_version = _VERSIONS[versions[0]]
    context.maximum_version = _VERSIONS[versions[-1]]


def _trust(context: ssl.SSLContext, store: Store) -> None:
    # Java trusts every certificate of a truststore by itself, also one of a broker or of an
    # authority in the middle of a chain. OpenSSL does so only with this flag.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=trusted_certificates(store))
    except (ssl.SSLError, ValueError) as error:
        raise SettingError(f"{store.name} has a damaged certificate: {_reason(error)}") from None


def _load_own_certificate(context: ssl.SSLContext, store: Store, prefix: str) -> None:
    key = own_key(store)
    password = key.password.reveal() if key.password else ""
    try:
        with _as_file(key.pem.reveal()) as path:
            context.load_cert_chain(path, password=lambda: password)
    except (ssl.SSLError, ValueError, OSError) as error:
        wrong = getattr(error, "reason", None) == "KEY_VALUES_MISMATCH"
        why = (
            "its certificate is for another key"
            if wrong
            else f"is {prefix}ssl.key.password {'right' if password else 'missing'}?"
        )
        raise SettingError(f"{store.name} has a private key that cannot be used: {why}") from None


@contextlib.contextmanager
def _as_file(pem: str) -> Iterator[str]:
    """Yield the path of a file with ``pem``, a private key and its certificates, because Python's
    ssl module reads keys only from files. On Linux (memfd_create and /proc) the file is in
    memory."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").exists():
        descriptor = os.memfd_create("key")
        try:
            os.write(descriptor, pem.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.TemporaryDirectory() as folder:  # only this process's user can read the folder
        path = Path(folder) / "key.pem"
        path.touch(0o600)
        path.write_text(pem, encoding="utf-8")
        yield str(path)


def _reason(error: BaseException) -> str:
    return getattr(error, "reason", None) or type(error).__name__


# --- errors of the handshake ---------------------------------------------------------------------
def handshake_error(error: Exception, host: str, peer: str, config: TlsConfig) -> ClientError:
    """The error for a failed TLS handshake with ``peer``, in one line; with advice if the cause is
    known."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _untrusted(error, host, peer, config)
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError):
        return ConnectionFailed(
            f"{peer} closed the connection during TLS's handshake: has that listener TLS? "
            f"{config.prefix}security.protocol says so"
        )
    if isinstance(error, TimeoutError):
        return ConnectionFailed(
            f"{peer} did not finish TLS's handshake in time: has that listener TLS? "
            f"{config.prefix}security.protocol says so"
        )
    if isinstance(error, ssl.SSLError):
        return alert_error(error, peer, config)
    return ConnectionFailed(f"connection to {peer} was lost during TLS's handshake: {error}")


def no_host_name(host: str, peer: str) -> TlsFailed:
    """The error for an address whose host TLS cannot compare with a certificate."""
    return TlsFailed(f"{peer}: {host!r} is no host name that TLS can check")


def later_error(
    error: ssl.SSLError, peer: str, config: TlsConfig, *, is_ready: bool
) -> ClientError:
    """The error for a TLS failure after the handshake; ``is_ready``: whether the connection has
    answered requests before."""
    alert = alert_error(error, peer, config)
    if not is_ready or is_about_certificates(error):
        return alert
    # Return ConnectionFailed, which is retriable: TLS has worked on this connection before, so TLS
    # probably works on a new connection.
    return ConnectionFailed(str(alert))


def closed_after_handshake(peer: str, config: TlsConfig) -> ConnectionFailed:
    """The error for a broker that closes the connection before it answers ApiVersions. Under TLS
    1.3 a broker that refuses this client's certificate, or the lack of one, may do so before the
    client has read its alert."""
    own = config.own
    question = (
        f"does it ask for a certificate of this client ({config.prefix}ssl.keystore.location)?"
        if own is None
        else f"does it accept this client's certificate ({own.name})?"
    )
    return ConnectionFailed(f"{peer} closed the connection after TLS's handshake: {question}")


def is_about_certificates(error: ssl.SSLError) -> bool:
    """Whether the error says that the broker requires a certificate of this client, or refuses the
    certificate that this client has sent."""
    reason = _alert(error)
    return "CERTIFICATE" in reason or "UNKNOWN_CA" in reason


def _alert(error: ssl.SSLError) -> str:
    return error.reason or error.strerror or str(error)


def alert_error(error: ssl.SSLError, peer: str, config: TlsConfig) -> ClientError:
    """The error for a TLS failure whose cause is not the broker's certificate."""
    reason = _alert(error)
    prefix = config.prefix
    if reason.endswith(_NO_TLS):
        return TlsFailed(
            f"{peer} does not speak TLS: set {prefix}security.protocol to PLAINTEXT (or "
            "SASL_PLAINTEXT), or use the port of a listener with TLS"
        )
    if reason.endswith(_NO_COMMON):
        suites = " with the cipher suites of the settings" if config.cipher_suites else ""
        # The alert HANDSHAKE_FAILURE can also mean that the server wants a certificate: before
        # TLS 1.3 some servers send this alert to a client that shows no certificate.
        unclear = reason.endswith("HANDSHAKE_FAILURE") and config.own is None
        or_else = (
            f", or set {prefix}ssl.keystore.location if it asks for a certificate of this client"
        )
        return TlsFailed(
            f"{peer} has no TLS in common with this client, which speaks "
            f"{', '.join(config.versions)}{suites}: check {prefix}ssl.enabled.protocols and "
            f"{prefix}ssl.cipher.suites on both sides{or_else if unclear else ''} ({reason})"
        )
    if is_about_certificates(error):
        if config.own is None:
            return TlsFailed(
                f"{peer} asks for a certificate of this client: set {prefix}ssl.keystore.location"
                f", or {prefix}ssl.keystore.key and {prefix}ssl.keystore.certificate.chain "
                f"({reason})"
            )
        return TlsFailed(
            f"{peer} does not accept this client's certificate: expected one whose authority is in "
            f"the broker's truststore, and that has not expired; see {config.own.name} ({reason})"
        )
    return TlsFailed(f"TLS with {peer} failed: {reason}")


def _untrusted(
    error: ssl.SSLCertVerificationError, host: str, peer: str, config: TlsConfig
) -> TlsFailed:
    code, prefix = error.verify_code, config.prefix
    if code == _EXPIRED:
        return TlsFailed(
            f"a certificate that {peer} shows has expired: renew it, or check this machine's clock"
        )
    if code == _NOT_YET:
        return TlsFailed(
            f"a certificate that {peer} shows is not valid yet: check both machines' clocks"
        )
    if code in (_OTHER_NAME, _OTHER_ADDRESS):
        return TlsFailed(
            f"the certificate of {peer} is not for {host!r}: use a name that it has in "
            f"{prefix}bootstrap.servers and in the brokers' advertised.listeners, or turn the "
            f'check off with {prefix}ssl.endpoint.identification.algorithm=""'
        )
    if config.trust is None:
        trusted = "this system's authorities"
    elif config.trust.location:
        trusted = f"the certificates of {config.trust.name}.location {config.trust.location}"
    else:
        trusted = f"{config.trust.name}.certificates"
    return TlsFailed(
        f"the certificate of {peer} is not trusted ({error.verify_message}): expected one from "
        f"{trusted}; set {prefix}ssl.truststore.location or {prefix}ssl.truststore.certificates to "
        "the authority that signed it"
    )
