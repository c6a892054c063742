"""Read the settings ``sasl.*`` into a checked value, `SaslConfig`. No I/O.

In client/security, driver.py creates SASL mechanisms from the value, and tokens.py gets tokens. If
a setting names a Java class of Kafka that klog knows, such as a login module or a callback handler,
klog's implementation of that class is used; ``module:callable`` names a user's Python function.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark_klog.security.errors import SettingError
from pyspark_klog.security.jaas import LoginModule, read_jaas
from pyspark_klog.security.lookup import (
    LoginOptions,
    Lookup,
    number_of,
    secret_of,
    text_of,
)
from pyspark_klog.security.oauthbearer import read_extensions, unsecured_token
from pyspark_klog.security.secret import Secret
from pyspark_klog.security.setting_rows import ASSERTION_PASSPHRASE, ASSERTIONS
from pyspark_klog.security.tls_config import TlsConfig, read_tls
from pyspark_klog.security.user_functions import UserFunction, java_class, parse_user_function

OAUTHBEARER = "OAUTHBEARER"
PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (*PASSWORD_MECHANISMS, OAUTHBEARER)

_JAAS = "sasl.jaas.config"
_MECHANISM = "sasl.mechanism"
_LOGIN_HANDLER = "sasl.login.callback.handler.class"
_CLIENT_HANDLER = "sasl.client.callback.handler.class"
_LOGIN_CLASS = "sasl.login.class"
_RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"

_KAFKA = "org.apache.kafka.common.security"
_OAUTH = f"{_KAFKA}.oauthbearer"
PLAIN_MODULE = f"{_KAFKA}.plain.PlainLoginModule"
SCRAM_MODULE = f"{_KAFKA}.scram.ScramLoginModule"
OAUTH_MODULE = f"{_OAUTH}.OAuthBearerLoginModule"

_FROM_ENDPOINT = (
    f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
    f"{_OAUTH}.secured.OAuthBearerLoginCallbackHandler",
)
_UNSECURED = (f"{_OAUTH}.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",)
_PASSWORD_DEFAULTS = (
    f"{_KAFKA}.authenticator.AbstractLogin$DefaultLoginCallbackHandler",
    f"{_KAFKA}.authenticator.SaslClientCallbackHandler",
)
_OAUTH_DEFAULTS = (f"{_OAUTH}.internals.OAuthBearerSaslClientCallbackHandler",)
_LOGIN_CLASSES = (
    f"{_KAFKA}.authenticator.DefaultLogin",
    f"{_OAUTH}.internals.OAuthBearerRefreshingLogin",
)
_RETRIEVERS = tuple(
    f"{_OAUTH}.{name}JwtRetriever" for name in ("Default", "ClientCredentials", "File")
)

_MSK = (
    "AWS_MSK_IAM is not built in, and need not be: brokers of MSK take the same credentials as a "
    f"token. Set {{prefix}}{_MECHANISM}=OAUTHBEARER and "
    f"{{prefix}}{_LOGIN_HANDLER}=module:callable, a Python function that calls "
    "AWS's signer: docs/security.md has it in full"
)
_TOKEN_FUNCTION = "module:callable, a Python function that gives a token"
_PASSWORD_FUNCTION = "module:callable, a Python function that gives (user, password)"

Options = Mapping[str, Secret]


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    """A user and password that the settings contain."""

    mechanism: str
    username: str
    password: Secret


@dataclass(frozen=True, slots=True)
class PasswordFunction:
    """A user-supplied function that returns user and password for each authentication."""

    mechanism: str
    function: UserFunction
    options: Options


@dataclass(frozen=True, slots=True)
class UnsecuredTokens:
    """Tokens without a signature, whose claims come from the login module's options."""

    setting: str
    options: Options


@dataclass(frozen=True, slots=True)
class TokenFunction:
    """A user-supplied function that returns tokens."""

    function: UserFunction
    options: Options
    extensions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TokenFile:
    """Tokens from a file. Another program must write a new token into the file before the old one
    expires."""

    setting: str
    path: str
    extensions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """Tokens from an OAuth 2 endpoint, for a client id and client secret (RFC 6749, 4.4)."""

    setting: str
    url: str
    client_id: str
    client_secret: Secret
    scope: str | None
    url_encode: bool
    tls: TlsConfig
    connect_timeout_ms: int
    read_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    extensions: Mapping[str, str]


TokenLogin = UnsecuredTokens | TokenFunction | TokenFile | ClientCredentials
Login = PasswordLogin | PasswordFunction | TokenLogin


@dataclass(frozen=True, slots=True)
class Renewal:
    """The rules for when a token with a known expiry is renewed; other tokens are used once.

    A token is due after the part ``factor`` of its lifetime, or ``buffer_ms`` before it expires if
    that is sooner, but not within ``min_period_ms`` after it was received. If the lifetime is
    shorter than ``buffer_ms`` and ``min_period_ms`` together, only ``factor`` counts.
    """

    factor: float = 0.8
    buffer_ms: int = 300_000
    min_period_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class SaslConfig:
    """The client's credentials, and the rules for when its tokens are renewed."""

    login: Login
    renewal: Renewal = field(default_factory=Renewal)


def read_sasl(settings: Lookup, prefix: str) -> SaslConfig:
    """Return the settings of SASL.

    :raises SettingError: if a setting is missing, unknown or not supported; the text says what to
        do
    """
    mechanism = _mechanism(settings, prefix)
    config = secret_of(settings, _JAAS)
    module = None if config is None else read_jaas(config, prefix + _JAAS)
    _check_login_class(settings, prefix)
    if mechanism == OAUTHBEARER:
        return SaslConfig(_token_login(settings, module, prefix), _renewal(settings, prefix))
    return SaslConfig(_password_login(settings, mechanism, module, prefix))


def _mechanism(settings: Lookup, prefix: str) -> str:
    mechanism = text_of(settings, _MECHANISM)
    expected = f"expected {', '.join(MECHANISMS[:-1])} or {MECHANISMS[-1]}"
    if mechanism is None:
        raise SettingError(
            f"{prefix}{_MECHANISM} is missing, and Kafka's default, GSSAPI, is not supported; "
            f"{expected}"
        )
    if mechanism == "GSSAPI":
        raise SettingError(
            f"{prefix}{_MECHANISM} is GSSAPI (Kerberos), which is not supported; {expected}: use "
            "another listener of the brokers, or enable one of these"
        )
    if mechanism == "AWS_MSK_IAM":
        raise SettingError(f"{prefix}{_MECHANISM}: " + _MSK.format(prefix=prefix))
    if mechanism not in MECHANISMS:
        raise SettingError(f"{prefix}{_MECHANISM} is {mechanism!r}; {expected}")
    return mechanism


def _check_login_class(settings: Lookup, prefix: str) -> None:
    name = text_of(settings, _LOGIN_CLASS)
    if name is not None and java_class(name) not in _LOGIN_CLASSES:
        raise SettingError(
            f"{prefix}{_LOGIN_CLASS} is {name!r}, and klog has no Java class of this name: leave "
            f"it out, and set {prefix}{_LOGIN_HANDLER} to module:callable, a Python function"
        )


def _function(
    settings: Lookup, name: str, prefix: str, known: tuple[str, ...], expected: str
) -> UserFunction | str | None:
    """Return the user's function, or the Java class in ``known``, that the setting ``name`` names.

    The result is None if the setting is not given. Any other Java class is an error.
    """
    value = text_of(settings, name)
    if value is None:
        return None
    if java_class(value) in known:
        return java_class(value)
    function = parse_user_function(prefix + name, value)
    if function is None:
        if value.startswith("software.amazon.msk.") or ".msk.auth.iam." in value:
            raise SettingError(f"{prefix}{name}: " + _MSK.format(prefix=prefix))
        raise SettingError(
            f"{prefix}{name} is {value!r}, and klog has no Java class of this name; expected "
            f"{expected} (docs/security.md)"
        )
    return function


# --- logins with user and password ---------------------------------------------------------------
def _password_login(
    settings: Lookup, mechanism: str, module: LoginModule | None, prefix: str
) -> PasswordLogin | PasswordFunction:
    for name in (_CLIENT_HANDLER, _LOGIN_HANDLER):
        function = _function(settings, name, prefix, _PASSWORD_DEFAULTS, _PASSWORD_FUNCTION)
        if isinstance(function, UserFunction):
            return PasswordFunction(mechanism, function, module.options if module else {})
    example = SCRAM_MODULE if mechanism.startswith("SCRAM") else PLAIN_MODULE
    wanted = f'{example} required username="..." password="...";'
    if module is None:
        raise SettingError(
            f"{prefix}{_JAAS} is missing; expected {wanted} (files of "
            "java.security.auth.login.config are not read)"
        )
    # Kafka's Java client accepts the PLAIN module for SCRAM, and the SCRAM module for PLAIN.
    if module.class_name not in (PLAIN_MODULE, SCRAM_MODULE):
        raise _wrong_module(module, mechanism, wanted, prefix)
    if module.options.get("tokenauth", Secret("")).reveal().strip().lower() == "true":
        raise SettingError(
            f'{prefix}{_JAAS} has tokenauth="true": delegation tokens are not supported; log in '
            "with a username and password of SCRAM, or set sasl.mechanism to another mechanism"
        )
    username, password = module.options.get("username"), module.options.get("password")
    if not username or password is None:
        missing = "username" if not username else "password"
        raise SettingError(f"{prefix}{_JAAS} has no value for option {missing}; expected {wanted}")
    return PasswordLogin(mechanism, username.reveal(), password)


def _wrong_module(module: LoginModule, mechanism: str, wanted: str, prefix: str) -> SettingError:
    name = module.class_name
    if name.endswith("Krb5LoginModule"):
        return SettingError(
            f"{prefix}{_JAAS} has {name}: GSSAPI (Kerberos) is not supported; expected {wanted}"
        )
    if name.endswith("IAMLoginModule"):
        return SettingError(f"{prefix}{_JAAS}: " + _MSK.format(prefix=prefix))
    if name in (PLAIN_MODULE, SCRAM_MODULE, OAUTH_MODULE):
        return SettingError(
            f"{prefix}{_JAAS} has {module.short_name}, and {prefix}{_MECHANISM} is {mechanism}; "
            f"expected {wanted}"
        )
    return SettingError(
        f"{prefix}{_JAAS} has the login module {name}, which klog does not have; expected {wanted}"
    )


# --- logins with tokens --------------------------------------------------------------------------
def _token_login(settings: Lookup, module: LoginModule | None, prefix: str) -> TokenLogin:
    if module is not None and module.class_name != OAUTH_MODULE:
        raise _wrong_module(module, OAUTHBEARER, f"{OAUTH_MODULE} required ...;", prefix)
    _function(settings, _CLIENT_HANDLER, prefix, _OAUTH_DEFAULTS, "nothing: leave it out")
    options: Options = module.options if module else {}
    handler = _function(
        settings, _LOGIN_HANDLER, prefix, (*_FROM_ENDPOINT, *_UNSECURED), _TOKEN_FUNCTION
    )
    extensions = read_extensions(options, "extension_", prefix + _JAAS)
    if isinstance(handler, UserFunction):
        return TokenFunction(handler, options, extensions)
    by_options = any(name.startswith("unsecuredLogin") for name in options)
    if handler in _UNSECURED or (handler is None and by_options):
        unsecured_token(options, 0, prefix + _JAAS)
        return UnsecuredTokens(prefix + _JAAS, options)
    retriever = _function(settings, _RETRIEVER, prefix, _RETRIEVERS, _TOKEN_FUNCTION)
    if isinstance(retriever, UserFunction):
        return TokenFunction(retriever, options, extensions)
    if handler is None and not settings.is_given(_ENDPOINT):
        raise SettingError(
            f"{prefix}{_MECHANISM} is OAUTHBEARER, and nothing says where tokens come from; "
            f"expected {prefix}{_LOGIN_HANDLER}=module:callable (a Python function that gives a "
            f"token), or {prefix}{_ENDPOINT} with clientId and clientSecret in {prefix}{_JAAS}"
        )
    return _from_endpoint(settings, options, extensions, prefix)


def _from_endpoint(
    settings: Lookup, options: Options, extensions: Mapping[str, str], prefix: str
) -> TokenLogin:
    _check_no_assertion(settings, prefix)
    url = text_of(settings, _ENDPOINT)
    if url is None:
        raise SettingError(
            f"{prefix}{_ENDPOINT} is missing; expected the https address that gives tokens, or a "
            "file's, as in file:///run/secrets/token"
        )
    if url.startswith("file:"):
        path = url.removeprefix("file:")
        return TokenFile(prefix + _ENDPOINT, "/" + path.lstrip("/"), extensions)
    if not url.startswith(("https://", "http://")):
        raise SettingError(f"{prefix}{_ENDPOINT} is {url!r}; expected https://..., or file:///...")
    if "@" in url.split("/")[2]:
        # The message does not show the URL, because it may have a password before the @.
        raise SettingError(
            f"{prefix}{_ENDPOINT} has a user before the host's name; expected https://host/path, "
            f"and clientId and clientSecret in {prefix}{_JAAS}"
        )
    client_id, client_secret = _client_of(settings, options, prefix)
    scope = text_of(settings, "sasl.oauthbearer.scope")
    given = options.get("scope")
    return ClientCredentials(
        prefix + _ENDPOINT,
        url,
        client_id,
        client_secret,
        scope or (given.reveal() if given else None),
        settings["sasl.oauthbearer.header.urlencode"] is True,
        read_tls(LoginOptions(options), f"{prefix}{_JAAS} "),
        number_of(settings, "sasl.login.connect.timeout.ms"),
        number_of(settings, "sasl.login.read.timeout.ms"),
        number_of(settings, "sasl.login.retry.backoff.ms"),
        number_of(settings, "sasl.login.retry.backoff.max.ms"),
        extensions,
    )


def _client_of(settings: Lookup, options: Options, prefix: str) -> tuple[str, Secret]:
    name = "sasl.oauthbearer.client.credentials.client"
    given_id = text_of(settings, f"{name}.id")
    from_options = options.get("clientId")
    client_id = given_id or (from_options.reveal() if from_options else "")
    client_secret = secret_of(settings, f"{name}.secret") or options.get("clientSecret")
    if not client_id or not client_secret:
        missing = "clientSecret" if client_id else "clientId"
        raise SettingError(
            f"{prefix}{_JAAS} has no value for option {missing}; expected {OAUTH_MODULE} required "
            'clientId="..." clientSecret="..." scope="...";'
        )
    return client_id, client_secret


def _check_no_assertion(settings: Lookup, prefix: str) -> None:
    given = [name for name in (*ASSERTIONS, ASSERTION_PASSPHRASE) if settings.is_given(name)]
    if given:
        raise SettingError(
            f"{prefix}{given[0]} is not supported: signed assertions (RFC 7523) need a Python "
            f"function of yours that gets the token; name it by "
            f"{prefix}{_LOGIN_HANDLER}=module:callable"
        )


def _renewal(settings: Lookup, prefix: str) -> Renewal:
    name = "sasl.login.refresh.window.factor"
    text = text_of(settings, name) or "0.8"
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0.5 <= factor <= 1.0:
        raise SettingError(f"{prefix}{name} is {text!r}; expected a number from 0.5 to 1.0")
    return Renewal(
        factor,
        number_of(settings, "sasl.login.refresh.buffer.seconds") * 1000,
        number_of(settings, "sasl.login.refresh.min.period.seconds") * 1000,
    )
