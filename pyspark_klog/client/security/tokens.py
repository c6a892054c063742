"""Bearer tokens: gets them from their source, and decides how long to use each.

A token is requested when a connection needs one, and there is no current token or it is due for
renewal.
"""

import logging
import math
from collections.abc import Callable
from pathlib import Path

from pyspark_klog.client import clock
from pyspark_klog.client.errors import AuthenticationFailed, SettingError
from pyspark_klog.errors import KlogError
from pyspark_klog.security.oauthbearer import (
    Token,
    check_token,
    expiry_of,
    unsecured_token,
)
from pyspark_klog.security.sasl_config import (
    ClientCredentials,
    Renewal,
    TokenFile,
    TokenFunction,
    TokenLogin,
    UnsecuredTokens,
)

_log = logging.getLogger(__name__)

_MAX_TOKEN_BYTES = 1 << 20


def renew_at_ms(token: Token, since_ms: int, renewal: Renewal) -> int:
    """When a token that was received at ``since_ms`` is due for renewal; ``since_ms`` itself if
    the token's expiry is unknown.

    Follows Kafka's Java client: the token is renewed once ``renewal.factor`` (0 to 1) of its
    lifetime has passed, but at least ``buffer_ms`` before its expiry, and at least
    ``min_period_ms`` after it was received. If ``buffer_ms`` and ``min_period_ms`` together exceed
    the lifetime, only the factor counts.
    """
    if token.expires_ms is None:
        return since_ms
    life_ms = token.expires_ms - since_ms
    by_factor = since_ms + int(life_ms * renewal.factor)
    if renewal.buffer_ms + renewal.min_period_ms > life_ms:
        return by_factor
    at = min(by_factor, token.expires_ms - renewal.buffer_ms)
    return max(at, since_ms + renewal.min_period_ms)


class TokenSource:
    """The tokens of one login. ``now_ms`` (since 1970) and ``sleep`` can be replaced in tests."""

    def __init__(
        self,
        login: TokenLogin,
        renewal: Renewal,
        *,
        now_ms: Callable[[], int] = clock.epoch_ms,
        sleep: Callable[[float], None] = clock.sleep,
    ) -> None:
        self._login = login
        self._renewal = renewal
        self._now_ms = now_ms
        self._sleep = sleep
        self._token: Token | None = None
        self._renew_at_ms = 0

    def token(self) -> Token:
        """The current token, or a new one once the current one is due for renewal. If no new token
        can be got, the current one is used until it expires, but not if its expiry is unknown.

        :raises AuthenticationFailed, SettingError: if there is no usable token
        """
        now_ms, held = self._now_ms(), self._token
        if held is not None and now_ms < self._renew_at_ms:
            return held
        try:
            token = self._get()
        except KlogError as error:
            if held is None or held.expires_ms is None or now_ms >= held.expires_ms:
                raise
            _log.warning("no new token; the current one is used until it expires: %s", error)
            return held
        self._token, self._renew_at_ms = token, renew_at_ms(token, now_ms, self._renewal)
        return token

    def _get(self) -> Token:
        login = self._login
        if isinstance(login, UnsecuredTokens):
            return unsecured_token(login.options, self._now_ms(), login.setting)
        if isinstance(login, TokenFunction):
            return _from_function(login)
        if isinstance(login, TokenFile):
            return _from_file(login)
        return self._from_endpoint(login)

    def _from_endpoint(self, login: ClientCredentials) -> Token:
        from pyspark_klog.client.security.token_endpoint import EndpointFailed, request_token

        end_ms = self._now_ms() + login.retry_backoff_max_ms
        wait_ms = max(login.retry_backoff_ms, 1)
        while True:
            asked_ms = self._now_ms()
            try:
                answer = request_token(login)
                break
            except EndpointFailed as error:
                if not error.may_pass or self._now_ms() + wait_ms >= end_ms:
                    raise AuthenticationFailed(str(error)) from None
                _log.warning("cannot get a token, trying again: %s", error)
            self._sleep(wait_ms / 1000)
            wait_ms = min(wait_ms * 2, login.retry_backoff_max_ms)
        value = check_token(answer.access_token)
        expires_ms = expiry_of(value)
        if expires_ms is None and answer.expires_in_s is not None:
            expires_ms = asked_ms + answer.expires_in_s * 1000
        return Token(value, expires_ms, login.extensions)


def _from_function(login: TokenFunction) -> Token:
    """Call a user's function, which returns a token, or (token, its expiry in ms since 1970)."""
    options = {name: value.reveal() for name, value in login.options.items()}
    function = login.function.load()
    try:
        given = function(options)
    except Exception as error:
        # Name only the error's type, because its text may contain a secret. A user who needs the
        # text can log it in ``function``, the user's own function that the setting names.
        raise AuthenticationFailed(
            f"{login.function.setting}: {login.function.name} raised {type(error).__name__}; it "
            "must give a token"
        ) from None
    value, expires_ms = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if not isinstance(value, str) or not (
        expires_ms is None or (isinstance(expires_ms, int | float) and math.isfinite(expires_ms))
    ):
        raise SettingError(
            f"{login.function.setting}: {login.function.name} gave {type(given).__name__}; "
            "expected a token as text, or (token, its expiry in ms since 1970)"
        )
    secret = check_token(value)
    end_ms = expiry_of(secret) if expires_ms is None else int(expires_ms)
    return Token(secret, end_ms, login.extensions)


def _from_file(login: TokenFile) -> Token:
    path = Path(login.path)
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MAX_TOKEN_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise AuthenticationFailed(f"{login.setting} {path} cannot be read here: {why}") from None
    if not text:
        raise AuthenticationFailed(f"{login.setting} {path} is empty; expected a token")
    value = check_token(text)
    return Token(value, expiry_of(value), login.extensions)
