"""Gets a token from an OAuth 2 endpoint with a client's id and secret (RFC 6749, 4.4).

Redirects are not followed, because they would send the secret to another host. A response is
limited in bytes, and in time however slowly its bytes come.
"""

import base64
import contextlib
import http.client
import json
import math
import socket
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

from pyspark_klog.client.errors import one_line
from pyspark_klog.client.security.tls import make_context
from pyspark_klog.errors import KlogError
from pyspark_klog.security.sasl_config import ClientCredentials

_MAX_ANSWER_BYTES = 1 << 20
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP status codes after which another request for a token may succeed."""
_LONGEST_TEXT = 200
_LONGEST_LIFE_S = 10 * 365 * 86_400


class IssuedToken(NamedTuple):
    """An OAuth 2 access token, and its lifetime in seconds if the endpoint's response gives one."""

    access_token: str
    expires_in_s: int | None


class EndpointFailed(KlogError):
    """The OAuth 2 token endpoint gave no token. ``may_pass`` says whether another request may
    succeed."""

    def __init__(self, text: str, may_pass: bool) -> None:
        super().__init__(text)
        self.may_pass = may_pass


class _Alarm:
    """Closes a connection whose response takes too long; ``rang`` tells whether it did."""

    def __init__(self, limit_s: float) -> None:
        self.rang = False
        self._limit_s = limit_s
        self._timer: threading.Timer | None = None

    def watch(self, sock: socket.socket) -> None:
        """Start the timer for the response that comes over this socket."""
        self.stop()
        self._timer = threading.Timer(self._limit_s, self._ring, (sock,))
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        """Stop the timer, because the response has come or is not awaited any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self, sock: socket.socket) -> None:
        self.rang = True
        with contextlib.suppress(OSError):
            # Call the base class: SSLSocket.shutdown would discard the TLS state, with which the
            # thread that waits for the response is reading.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def request_token(login: ClientCredentials) -> IssuedToken:
    """Ask the endpoint for a token, without retries.

    :raises EndpointFailed: if there is no token; the message has the endpoint's URL and its error
    :raises SettingError: if a TLS setting for the endpoint is wrong
    """
    where = f"token endpoint {login.url}"
    alarm = _Alarm(login.read_timeout_ms / 1000)
    try:
        request = urllib.request.Request(
            login.url, data=_form(login), headers=_headers(login), method="POST"
        )
        opener = _opener(login, alarm)
        with opener.open(request, timeout=login.connect_timeout_ms / 1000) as response:
            content = response.read(_MAX_ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        body = b""
        with error, contextlib.suppress(OSError, http.client.HTTPException):
            body = error.read(_MAX_ANSWER_BYTES)
        said = _said(body, login)
        raise EndpointFailed(
            f"{where} answered {error.code}{said}; check clientId, clientSecret and scope, and the "
            "endpoint's URL and state",
            error.code in _PASSING,
        ) from None
    except (OSError, http.client.HTTPException) as error:
        if alarm.rang:
            raise _too_slow(where, login) from None
        reason: object = getattr(error, "reason", error)
        untrusted = isinstance(reason, ssl.SSLCertVerificationError)
        text = getattr(reason, "verify_message", None) or getattr(reason, "strerror", None)
        hint = "; ssl.truststore.* can be options of sasl.jaas.config" if untrusted else ""
        raise EndpointFailed(
            f"{where} gave no complete response: {text or type(reason).__name__}{hint}",
            not untrusted,
        ) from None
    except ValueError:
        raise EndpointFailed(
            f"{where} cannot be asked by that address: expected https://host/path in ASCII", False
        ) from None
    finally:
        alarm.stop()
    if alarm.rang:
        raise _too_slow(where, login)
    return _read(content, where)


def _too_slow(where: str, login: ClientCredentials) -> EndpointFailed:
    return EndpointFailed(f"{where} did not answer within {login.read_timeout_ms} ms", True)


def _opener(login: ClientCredentials, alarm: _Alarm) -> urllib.request.OpenerDirector:
    class Plain(http.client.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            self.sock.settimeout(None)
            alarm.watch(self.sock)

    class Secured(http.client.HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            self.sock.settimeout(None)
            alarm.watch(self.sock)

    class PlainHandler(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Plain, req)

    class SecuredHandler(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Secured, req, context=context)

    if not login.url.startswith("https:"):
        return urllib.request.build_opener(_NoRedirect, PlainHandler)
    context = make_context(login.tls)
    return urllib.request.build_opener(_NoRedirect, PlainHandler, SecuredHandler)


def _form(login: ClientCredentials) -> bytes:
    fields = {"grant_type": "client_credentials"}
    if login.scope:
        fields["scope"] = login.scope
    return urllib.parse.urlencode(fields).encode()


def _headers(login: ClientCredentials) -> dict[str, str]:
    client_id, client_secret = login.client_id, login.client_secret.reveal()
    if login.url_encode:
        client_id = urllib.parse.quote_plus(client_id)
        client_secret = urllib.parse.quote_plus(client_secret)
    basic = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
    return {
        "Accept": "application/json",
        "Authorization": f"Basic {basic}",
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }


def _said(content: bytes, login: ClientCredentials) -> str:
    """The text in an error's body (RFC 6749, 5.2), without the secret if the body repeats it."""
    try:
        found = json.loads(content)
        parts = [found[key] for key in ("error", "error_description") if found.get(key)]
        text = ": ".join(map(str, parts))
    except (ValueError, AttributeError, RecursionError):
        text = ""
    text = one_line(text.replace(login.client_secret.reveal(), "***"), _LONGEST_TEXT)
    return f" ({text})" if text else ""


def _read(content: bytes, where: str) -> IssuedToken:
    try:
        found = json.loads(content)
        token = found["access_token"]
        expires_in_s = _seconds(found.get("expires_in"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        token = expires_in_s = None
    if not isinstance(token, str) or not token:
        raise EndpointFailed(
            f"{where} sent no usable token; expected JSON with access_token as text and, if it has "
            "expires_in, a number of seconds",
            False,
        )
    return IssuedToken(token, expires_in_s)


def _seconds(given: Any) -> int | None:
    """A token's lifetime in seconds (0 to ten years), given as a number or text; None if it is
    missing or not finite."""
    if given is None:
        return None
    seconds = float(given)
    return int(min(max(seconds, 0), _LONGEST_LIFE_S)) if math.isfinite(seconds) else None
