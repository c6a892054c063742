"""The SASL mechanism OAUTHBEARER (RFC 7628), and functions that check and read tokens. No I/O."""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark_klog.security.errors import AuthenticationFailed, SettingError, one_line
from pyspark_klog.security.secret import Secret

_SEPARATOR = "\x01"
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7E \t\r\n]+")

_STRING, _NUMBER, _LIST = (f"unsecuredLogin{kind}Claim_" for kind in ("String", "Number", "List"))
_DEFAULT_LIFETIME_S = 3_600


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token. ``expires_ms`` is the expiry in ms since the epoch, or None if unknown."""

    value: Secret
    expires_ms: int | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)
    """SASL extensions (KIP-342), which some services need in addition to the token."""


class OAuthBearer:
    """The client's side of one authentication with a bearer token."""

    name = "OAUTHBEARER"
    username = ""
    """The user's name is empty, because only the token has it and the client does not read it."""

    def __init__(self, token: Token) -> None:
        self._token = token
        self._refusal: str | None = None

    def initial(self) -> bytes:
        """Return the client's first message: the token and its extensions."""
        parts = ["n,,", f"auth=Bearer {self._token.value.reveal()}"]
        parts += [f"{name}={value}" for name, value in self._token.extensions.items()]
        return (_SEPARATOR.join(parts) + _SEPARATOR * 2).encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Return None if the broker accepted the token, or else the next message to send.

        A broker that refuses the token sends the reason as a challenge. The client must answer the
        challenge before the broker sends its error (RFC 7628, 3.2.3).
        """
        if self._refusal is not None:
            # The broker has already refused the token by a challenge. After that RFC 7628 (3.2.3)
            # allows only an error, but the broker has sent another challenge or success.
            raise AuthenticationFailed(f"the broker refused the token: {self._refusal}")
        if not challenge:
            return None
        self._refusal = self._without_token(_refusal(challenge))
        return _SEPARATOR.encode()

    def explain(self, text: str) -> str:
        """Return the broker's error text, with the reason from its challenge and without the
        token."""
        text = self._without_token(text)
        if self._refusal is None or self._refusal in text:
            return text
        # Kafka's error text repeats the JSON of the broker's challenge: return only the reason.
        is_told = not text or text.lstrip().startswith("{")
        return self._refusal if is_told else f"{text} ({self._refusal})"

    def _without_token(self, text: str) -> str:
        return text.replace(self._token.value.reveal(), "***")


def _refusal(challenge: bytes) -> str:
    """Return the status and scope in a broker's challenge, which is JSON, as text for an error
    message."""
    try:
        found = json.loads(challenge)
        parts = [f"{k} {found[k]}" for k in ("status", "scope") if isinstance(found.get(k), str)]
    except (ValueError, AttributeError, RecursionError):
        parts = []
    return one_line(", ".join(parts), 200) or "no reason given"


def check_token(text: str) -> Secret:
    """Return the token ``text`` as a secret.

    :raises AuthenticationFailed: if ``text`` has characters that a bearer token cannot have; the
        message does not show the token
    """
    if not _TOKEN.fullmatch(text):
        raise AuthenticationFailed(
            "the token is empty, or has characters that a bearer token cannot have (RFC 6750): "
            "expected letters, digits and -._~+/, and = only at the end"
        )
    return Secret(text)


def read_extensions(options: Mapping[str, Secret], prefix: str, name: str) -> dict[str, str]:
    """Return the SASL extensions: the login module's options that begin with ``prefix``.

    The keys of the result have no prefix. ``name`` is the name of the setting that holds the login
    module's options, such as sasl.jaas.config, for error messages.

    :raises SettingError: if RFC 7628 does not allow an extension's name or value
    """
    found: dict[str, str] = {}
    for option, value in options.items():
        if not option.startswith(prefix):
            continue
        extension = option.removeprefix(prefix)
        if not _EXTENSION_NAME.fullmatch(extension) or extension == "auth":
            raise SettingError(
                f"{name} has the option {option}; expected {prefix} and an extension's name, which "
                "has only letters and is not the reserved name auth"
            )
        if not _EXTENSION_VALUE.fullmatch(value.reveal()):
            raise SettingError(f"{name} has an option {option} with a value that cannot be sent")
        found[extension] = value.reveal()
    return found


def expiry_of(token: Secret) -> int | None:
    """Return the expiry of a token in ms since the epoch; None if it is no JWT with an expiry."""
    parts = token.reveal().split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return int(float(claims["exp"]) * 1000)
    except (binascii.Error, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def unsecured_token(options: Mapping[str, Secret], now_ms: int, name: str) -> Token:
    """Return a token without a signature, whose claims come from the login module's options.

    Java's OAuthBearerUnsecuredLoginCallbackHandler takes the same options. ``name`` is the name of
    the setting with the login module (sasl.jaas.config, perhaps with a prefix), for error messages.

    :raises SettingError: if no claim names the principal (the user), or a number or an extension
        is invalid
    """
    plain = {option: value.reveal() for option, value in options.items()}
    claims: dict[str, object] = {}
    for option, text in plain.items():
        if option.startswith(_STRING):
            claims[option.removeprefix(_STRING)] = text
        elif option.startswith(_NUMBER):
            claims[option.removeprefix(_NUMBER)] = _as_number(option, text, name)
        elif option.startswith(_LIST):
            # The option's text begins with the separator of the list's items, as in |read|write.
            claims[option.removeprefix(_LIST)] = text[1:].split(text[0]) if text else []
    principal = plain.get("unsecuredLoginPrincipalClaimName", "sub")
    if not isinstance(claims.get(principal), str):
        raise SettingError(
            f"{name} gives no text for claim {principal} of an unsecured token; expected the "
            f'option {_STRING}{principal}="alice"'
        )
    lifetime = plain.get("unsecuredLoginLifetimeSeconds", str(_DEFAULT_LIFETIME_S))
    lifetime_s = _as_number("unsecuredLoginLifetimeSeconds", lifetime, name)
    expires_ms = now_ms + int(lifetime_s * 1000)
    claims = {"iat": now_ms / 1000, "exp": expires_ms / 1000} | claims
    text = f"{_base64url({'alg': 'none'})}.{_base64url(claims)}."
    extensions = read_extensions(options, "unsecuredLoginExtension_", name)
    return Token(Secret(text), expires_ms, extensions)


def _as_number(option: str, text: str, name: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not -1e15 < number < 1e15:
        raise SettingError(
            f"{name} has an option {option} that is no number between -1e15 and 1e15"
        )
    return number


def _base64url(value: object) -> str:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()
