"""What securing a connection can raise. None of it is retried: the next attempt would end alike."""

from pyspark_klog.client.errors import ClientError


class AuthenticationFailed(ClientError):
    """The broker, or the service that gives tokens, did not accept who this client says it is."""


class TlsFailed(ClientError):
    """No TLS with the other side: certificates, names, versions, or no TLS there at all."""
