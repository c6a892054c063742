"""Turn the settings of TLS and SASL into those of `ClientSettings`, which have Java's names.

PEM files of a certificate and its key become PEM text, because Java has one file for both. A user
and password, and the settings of tokens, become a login module in ``sasl.jaas.config``.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from pyspark_klog.client.security.stores import MAX_STORE_BYTES
from pyspark_klog.kafka._setting_rows import BY_NAME
from pyspark_klog.kafka._setting_values import invalid_argument, invalid_value
from pyspark_klog.security.config import has_no_effect, uses_sasl, uses_tls
from pyspark_klog.security.sasl_config import (
    OAUTH_MODULE,
    OAUTHBEARER,
    PASSWORD_MECHANISMS,
    PLAIN_MODULE,
    SCRAM_MODULE,
)
from pyspark_klog.security.secret import Secret
from pyspark_klog.security.setting_types import Value

TOKEN_FUNCTION = "pyspark_klog.kafka._security_settings:token_before_callback"
"""The value of sasl.login.callback.handler.class if the setting oauth_cb gives the tokens."""

_JAAS = "sasl.jaas.config"
_MECHANISM = "sasl.mechanism"
_LOGIN_HANDLER = "sasl.login.callback.handler.class"
_HOST_CHECK = "ssl.endpoint.identification.algorithm"
_UNSECURED = "enable.sasl.oauthbearer.unsecure.jwt"
_VERIFICATION = "enable.ssl.certificate.verification"
_OAUTH = "sasl.oauthbearer."
_ENDPOINT = f"{_OAUTH}token.endpoint.url"
_RETRIEVER = f"{_OAUTH}jwt.retriever.class"
_EXTENSION = re.compile("[A-Za-z]+")
_CLAIM = re.compile(r"\w+", re.ASCII)
_PROBE = "probe"
_ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r"}


class SecuritySettings:
    """The settings of TLS and SASL that a program gave.

    ``client`` has the values for `ClientSettings`, ``ignored`` the settings without effect, each
    with the reason.

    :raises KafkaException: _INVALID_ARG for settings that contradict each other, that are missing,
        or that klog cannot obey
    """

    def __init__(self, values: Mapping[str, object], names: Mapping[str, str]) -> None:
        """``values`` are typed, by the names in the table; ``names`` are the names that the
        program used for them."""
        self._values = {name: values[name] for name in values if _is_about_security(name)}
        self._has_callback = "oauth_cb" in values
        self._names = names
        self.client: dict[str, Value] = {}
        self.ignored: dict[str, str] = {}
        self.protocol = self._text("security.protocol") or "PLAINTEXT"
        self.mechanism = self._text(_MECHANISM) if uses_sasl(self.protocol) else ""
        self._sort_out()
        self._add_files()
        if uses_sasl(self.protocol):
            self._add_login()

    def _text(self, name: str) -> str:
        value = self._values.get(name)
        return value.reveal() if isinstance(value, Secret) else "" if value is None else str(value)

    def _shown(self, name: str) -> str:
        return self._names.get(name, name)

    def _sort_out(self) -> None:
        """Pass Java's settings on, and find those that have no effect, or that klog must refuse."""
        for name in list(self._values):
            row, value = BY_NAME[name], self._values[name]
            reason = self._no_effect(name)
            if reason or (row.without and not row.is_refused):
                self.ignored[name] = reason or row.without
                del self._values[name]
            elif row.is_refused and value not in (None, row.default):
                raise invalid_argument(
                    f"{self._shown(name)}={'***' if isinstance(value, Secret) else value} is not "
                    f"supported: {row.without}"
                )
            elif row.client and (value or name == _HOST_CHECK):
                assert isinstance(value, str | int | Secret)
                self.client[row.client] = value

    def _no_effect(self, name: str) -> str:
        # https.ca settings secure the connection to the endpoint that gives tokens.
        about_tls = name == _VERIFICATION or name.startswith("ssl.")
        about_sasl = name.startswith(("sasl.", "https.ca.")) or name == _UNSECURED
        as_java = "ssl." if about_tls else "sasl." if about_sasl else name
        if has_no_effect(as_java, self.protocol):
            return f"security.protocol is {self.protocol}"
        if name in ("sasl.username", "sasl.password") and self.mechanism == OAUTHBEARER:
            return f"{self._shown(_MECHANISM)} is {OAUTHBEARER}"
        about_tokens = about_sasl and (name.startswith((_OAUTH, "https.ca.")) or name == _UNSECURED)
        if about_tokens and self.mechanism != OAUTHBEARER:
            return f"{self._shown(_MECHANISM)} is not {OAUTHBEARER}"
        if about_tokens and self._has_callback and name not in (f"{_OAUTH}config", _UNSECURED):
            return "oauth_cb gives the tokens"
        return ""

    # --- TLS --------------------------------------------------------------------------------------
    def _add_files(self) -> None:
        if not uses_tls(self.protocol):
            return
        self._check_one("ssl.truststore.location", "ssl.truststore.certificates")
        location = self._text("ssl.truststore.location")
        if location == _PROBE:
            del self.client["ssl.truststore.location"]
        elif location and Path(location).is_dir():
            raise invalid_value(
                self._shown("ssl.truststore.location"), location, "a file, not a directory"
            )
        self._check_one("ssl.certificate.location", "ssl.keystore.certificate.chain")
        self._check_one("ssl.key.location", "ssl.keystore.key")
        certificate, key = self._text("ssl.certificate.location"), self._text("ssl.key.location")
        has_certificate = certificate or self._text("ssl.keystore.certificate.chain")
        has_key = key or self._text("ssl.keystore.key")
        if bool(has_certificate) != bool(has_key):
            wanted = "ssl.key.location or ssl.key.pem"
            if has_key:
                wanted = "ssl.certificate.location or ssl.certificate.pem"
            raise invalid_argument(
                f"{wanted} is missing: a certificate and its private key are needed together"
            )
        if has_key:
            self._check_one(
                *("ssl.keystore.location", "ssl.key.location" if key else "ssl.keystore.key")
            )
        if certificate and certificate == key:
            self._read("ssl.key.location")
            self.client["ssl.keystore.location"] = certificate
            return
        if certificate:
            self.client["ssl.keystore.certificate.chain"] = self._read("ssl.certificate.location")
        if key:
            self.client["ssl.keystore.key"] = self._read("ssl.key.location")

    def _check_one(self, *names: str) -> None:
        given = [self._shown(name) for name in names if self._text(name)]
        if len(given) > 1:
            raise invalid_argument(f"{' and '.join(given)} are given; expected one of them")

    def _read(self, name: str) -> Secret:
        path = self._text(name)
        try:
            with Path(path).open("rb") as file:
                return Secret(file.read(MAX_STORE_BYTES).decode("latin-1"))
        except OSError as error:
            raise invalid_argument(
                f"{self._shown(name)} {path} cannot be read: {error.strerror or error}"
            ) from None

    # --- SASL -------------------------------------------------------------------------------------
    def _add_login(self) -> None:
        if self.mechanism in PASSWORD_MECHANISMS:
            self._add_password_login()
        elif self.mechanism == OAUTHBEARER:
            self._add_token_login()

    def _add_password_login(self) -> None:
        given = [name for name in ("sasl.username", "sasl.password") if self._text(name)]
        others = ("sasl.client.callback.handler.class", _LOGIN_HANDLER, _JAAS)
        other = next((name for name in others if name in self.client), None)
        if other and given:
            raise invalid_argument(f"{given[0]} and {other} are given; expected one of them")
        if other:
            return
        if len(given) < 2:
            raise invalid_argument(
                f"{'sasl.password' if given == ['sasl.username'] else 'sasl.username'} is missing: "
                f"sasl.username and sasl.password are needed for {self._shown(_MECHANISM)}="
                f"{self.mechanism}"
            )
        module = SCRAM_MODULE if self.mechanism.startswith("SCRAM") else PLAIN_MODULE
        options = {"username": self._text("sasl.username"), "password": self._text("sasl.password")}
        self.client[_JAAS] = login_module(module, options)

    def _add_token_login(self) -> None:
        if self._has_callback:
            if self._values.get(_UNSECURED):
                raise invalid_argument(f"{_UNSECURED} and oauth_cb are given; expected one of them")
            self._check_no_handler("oauth_cb")
            self.client[_LOGIN_HANDLER] = TOKEN_FUNCTION
            return
        options = self._endpoint_options()
        if self._values.get(_UNSECURED):
            self._check_no_handler(_UNSECURED)
            options = self._unsecured_options()
        if _JAAS not in self.client:
            self._check_source_of_tokens()
        if not options:
            return
        if _JAAS in self.client:
            raise invalid_argument(
                f"{_JAAS} is given together with other settings of tokens; write them as options "
                "of its login module"
            )
        self.client[_JAAS] = login_module(OAUTH_MODULE, options)

    def _check_source_of_tokens(self) -> None:
        """Check that tokens can come from somewhere without a login module of the program."""
        if (
            self._values.get(_UNSECURED)
            or _LOGIN_HANDLER in self.client
            or _RETRIEVER in self.client
        ):
            return
        url = self._text(_ENDPOINT)
        if not url:
            raise invalid_argument(
                f"{self._shown(_MECHANISM)} is {OAUTHBEARER}, and nothing says where tokens come "
                f"from; expected oauth_cb, or {_ENDPOINT} with the id and secret of a client"
            )
        for part in () if url.startswith("file:") else ("id", "secret"):
            if not self._text(f"{_OAUTH}client.credentials.client.{part}"):
                raise invalid_argument(
                    f"{_OAUTH}client.{part} is missing; {_ENDPOINT} needs the id and secret of a "
                    "client"
                )

    def _check_no_handler(self, name: str) -> None:
        for handler in (_LOGIN_HANDLER, _RETRIEVER):
            if handler in self.client:
                raise invalid_argument(f"{name} and {handler} are given; expected one of them")

    def _endpoint_options(self) -> dict[str, str]:
        """Return the options of the login module for tokens from an endpoint."""
        self._check_one("https.ca.location", "https.ca.pem")
        options = {}
        if self._text("https.ca.location") not in ("", _PROBE):
            options["ssl.truststore.location"] = self._text("https.ca.location")
        if self._text("https.ca.pem"):
            options["ssl.truststore.certificates"] = self._text("https.ca.pem")
        name = f"{_OAUTH}extensions"
        for part in filter(None, self._text(name).split(",")):
            extension, equals, value = part.strip().partition("=")
            if not equals or not _EXTENSION.fullmatch(extension):
                raise invalid_value(name, self._text(name), "name=value,..., with names of letters")
            options[f"extension_{extension}"] = value
        return options

    def _unsecured_options(self) -> dict[str, str]:
        """Return the options of the login module for tokens without a signature."""
        name = f"{_OAUTH}config"
        given = dict(part.partition("=")[::2] for part in self._text(name).split())
        claim, scopes = given.pop("principalClaimName", "sub"), given.pop("scopeClaimName", "scope")
        has_names = _CLAIM.fullmatch(claim) and _CLAIM.fullmatch(scopes)
        if not given.get("principal") or not has_names:
            raise invalid_value(name, "***", "principal=NAME and other parts name=value")
        options = {
            "unsecuredLoginPrincipalClaimName": claim,
            f"unsecuredLoginStringClaim_{claim}": given.pop("principal"),
        }
        if scope := given.pop("scope", ""):
            options[f"unsecuredLoginListClaim_{scopes}"] = f",{scope}"
        if seconds := given.pop("lifeSeconds", ""):
            options["unsecuredLoginLifetimeSeconds"] = seconds
        for part, value in given.items():
            extension = part.removeprefix("extension_")
            if extension == part or not _EXTENSION.fullmatch(extension):
                raise invalid_value(
                    *(name, "***"),
                    "the parts principal, principalClaimName, scope, scopeClaimName, lifeSeconds "
                    "and extension_NAME",
                )
            options[f"unsecuredLoginExtension_{extension}"] = value
        return options


def _is_about_security(name: str) -> bool:
    return name.startswith(("security.protocol", "ssl.", "sasl.", "https.ca.")) or name in (
        _VERIFICATION,
        _UNSECURED,
    )


def login_module(module: str, options: Mapping[str, str]) -> Secret:
    """Return the text of ``sasl.jaas.config`` for a login module with its options."""
    written = "".join(f' {name}="{_escaped(value)}"' for name, value in options.items())
    return Secret(f"{module} required{written};")


def _escaped(value: str) -> str:
    return "".join(_ESCAPES.get(char, char) for char in value)


def token_before_callback(_options: Mapping[str, str]) -> str:
    """Raise an error: the client asks oauth_cb for each token before it connects."""
    raise RuntimeError("oauth_cb has given no token yet")
