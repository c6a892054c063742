"""Security settings: their meaning, the refused ones, and secrets that appear in no text."""

import copy
import logging
import pickle
from collections.abc import Mapping

import pytest

from pyspark_klog.client.errors import SettingError
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.security.sasl_config import (
    ClientCredentials,
    PasswordFunction,
    PasswordLogin,
    Renewal,
    TokenFile,
    TokenFunction,
    UnsecuredTokens,
)
from pyspark_klog.security.secret import Secret
from pyspark_klog.spark.options.reader import read_options
from tests.support.security.kafka_listeners import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, jaas

SASL = {"security.protocol": "SASL_PLAINTEXT"}
OAUTH = {**SASL, "sasl.mechanism": "OAUTHBEARER"}
SSL = {"security.protocol": "SSL"}
KAFKA = "org.apache.kafka.common.security"
FROM_ENDPOINT = f"{KAFKA}.oauthbearer.OAuthBearerLoginCallbackHandler"


def _security(given: Mapping[str, str]):
    found = ClientSettings(given, prefix="kafka.").security
    assert found is not None
    return found


def _login(given: Mapping[str, str]):
    return _security(given).sasl.login


def _refusal(given: Mapping[str, str]) -> str:
    with pytest.raises(SettingError) as caught:
        ClientSettings(given, prefix="kafka.")
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- protocols -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("protocol", "tls", "sasl"),
    [("ssl", True, False), ("SASL_PLAINTEXT", False, True), ("SASL_SSL", True, True)],
)
def test_what_a_protocol_has(protocol: str, tls: bool, sasl: bool) -> None:
    given = {"security.protocol": protocol, "sasl.mechanism": "PLAIN"}
    found = _security({**given, "sasl.jaas.config": jaas("PLAIN")})
    assert (found.tls is not None, found.sasl is not None) == (tls, sasl)


def test_settings_that_the_protocol_does_not_use_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {"ssl.keystore.password": "HIDDEN", "sasl.jaas.config": "HIDDEN", "retries": "1"}
    settings = ClientSettings(given)
    assert settings == ClientSettings({"retries": "1"})
    assert settings.security is None
    with caplog.at_level(logging.WARNING):
        settings.warn_of_ignored()
    assert "setting=ssl.keystore.password is accepted without effect: security.protocol is PLA" in (
        caplog.text
    )
    assert "HIDDEN" not in caplog.text
    assert ClientSettings({**SSL, "sasl.mechanism": "nonsense"}).security.sasl is None


# --- user and password ---------------------------------------------------------------------------
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("module", [PLAIN_MODULE, SCRAM_MODULE, f"kafkashaded.{PLAIN_MODULE}"])
def test_user_and_password_come_from_either_module(mechanism: str, module: str) -> None:
    config = f'{module} required username="alice" password="p;w";'
    given = {**SASL, "sasl.mechanism": mechanism, "sasl.jaas.config": config}
    assert _login(given) == PasswordLogin(mechanism, "alice", Secret("p;w"))


@pytest.mark.parity("security: jaas: PlainLoginModule")
def test_a_plain_login_module_needs_user_and_password() -> None:
    given = {**SASL, "sasl.mechanism": "PLAIN"}
    wanted = f'expected {PLAIN_MODULE} required username="..." password="...";'
    assert _refusal(given) == (
        f"kafka.sasl.jaas.config is missing; {wanted} (files of java.security.auth.login.config "
        "are not read)"
    )
    for config, missing in (
        (f"{PLAIN_MODULE} required;", "username"),
        (f'{PLAIN_MODULE} required username="alice";', "password"),
        (f'{PLAIN_MODULE} required username="" password="HIDDEN";', "username"),
    ):
        text = _refusal({**given, "sasl.jaas.config": config})
        assert text == f"kafka.sasl.jaas.config has no value for option {missing}; {wanted}"


@pytest.mark.parity("security: jaas: ScramLoginModule")
def test_a_module_that_is_not_for_the_mechanism() -> None:
    given = {**SASL, "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas("OAUTHBEARER")}
    assert _refusal(given) == (
        "kafka.sasl.jaas.config has OAuthBearerLoginModule, and kafka.sasl.mechanism is "
        f'SCRAM-SHA-256; expected {SCRAM_MODULE} required username="..." password="...";'
    )
    assert "which klog does not have" in _refusal(
        {**given, "sasl.jaas.config": "com.example.OwnLoginModule required;"}
    )


@pytest.mark.parity("security: delegation tokens", differs="delegation-tokens")
def test_delegation_tokens_are_refused() -> None:
    config = f'{SCRAM_MODULE} required username="id" password="HIDDEN" tokenauth="true";'
    given = {**SASL, "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": config}
    assert _refusal(given) == (
        'kafka.sasl.jaas.config has tokenauth="true": delegation tokens are not supported; '
        "log in with a username and password of SCRAM, or set sasl.mechanism to another mechanism"
    )
    ClientSettings({**given, "sasl.jaas.config": config.replace("true", "false")})


@pytest.mark.parity("security: GSSAPI", differs="kerberos")
def test_gssapi_is_refused_also_as_the_default() -> None:
    assert _refusal(SASL).startswith(
        "kafka.sasl.mechanism is missing, and Kafka's default, GSSAPI, is not supported; expected "
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
    )
    assert _refusal({**SASL, "sasl.mechanism": "GSSAPI"}).startswith(
        "kafka.sasl.mechanism is GSSAPI (Kerberos), which is not supported; expected PLAIN, "
    )
    config = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;"
    text = _refusal({**SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": config})
    assert "Krb5LoginModule: GSSAPI (Kerberos) is not supported" in text


def test_an_unknown_mechanism_is_refused_with_those_that_there_are() -> None:
    assert _refusal({**SASL, "sasl.mechanism": "scram"}) == (
        "kafka.sasl.mechanism is 'scram'; expected PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or "
        "OAUTHBEARER"
    )


@pytest.mark.parity("security: AWS_MSK_IAM", differs="java-classes")
@pytest.mark.parametrize(
    "given",
    [
        {"sasl.mechanism": "AWS_MSK_IAM"},
        {
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        },
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": "software.amazon.msk.auth.iam."
            "IAMOAuthBearerLoginCallbackHandler",
        },
    ],
)
def test_msk_errors_name_the_token_callback(given: dict[str, str]) -> None:
    text = _refusal({**SASL, **given})
    assert "Set kafka.sasl.mechanism=OAUTHBEARER and kafka.sasl.login.callback.handler.class=" in (
        text
    )
    assert text.endswith(
        "a Python function that calls AWS's signer: docs/security.md has it in full"
    )


@pytest.mark.parity("security: AWS_MSK_IAM", differs="java-classes")
def test_mks_token_callback_needs_no_login_module() -> None:
    given = {**OAUTH, "sasl.login.callback.handler.class": "my_job.msk:token"}
    assert _login(given).function.name == "my_job.msk:token"


# --- Java's class names --------------------------------------------------------------------------
@pytest.mark.parity("security: Java class names", differs="java-classes")
@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("sasl.login.callback.handler.class", "module:callable, a Python function that gives"),
        ("sasl.client.callback.handler.class", "module:callable, a Python function that gives"),
        ("sasl.login.class", "set kafka.sasl.login.callback.handler.class to module:callable"),
        ("ssl.engine.factory.class", "module:callable, a Python function that takes the settings"),
    ],
)
def test_a_java_class_that_is_not_known_names_the_alternative(setting: str, expected: str) -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    text = _refusal({**given, "sasl.jaas.config": jaas("PLAIN"), setting: "com.example.Own"})
    assert text.startswith(
        f"kafka.{setting} is 'com.example.Own', and klog has no Java class of this name"
    )
    assert expected in text


@pytest.mark.parity("security: Java class names", differs="java-classes")
@pytest.mark.parametrize("shaded", ["", "kafkashaded."])
def test_java_classes_that_are_built_in(shaded: str) -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    given |= {
        "sasl.jaas.config": jaas("PLAIN"),
        "sasl.login.class": f"{shaded}{KAFKA}.authenticator.DefaultLogin",
        "sasl.client.callback.handler.class": f"{shaded}{KAFKA}.authenticator."
        "SaslClientCallbackHandler",
        "ssl.engine.factory.class": f"{shaded}{KAFKA}.ssl.DefaultSslEngineFactory",
    }
    assert isinstance(_login(given), PasswordLogin)
    unsecured = f"{shaded}{KAFKA}.oauthbearer.internals.unsecured."
    unsecured += "OAuthBearerUnsecuredLoginCallbackHandler"
    found = _login(
        {
            **OAUTH,
            "sasl.jaas.config": jaas("OAUTHBEARER"),
            "sasl.login.callback.handler.class": unsecured,
            "sasl.login.class": f"{KAFKA}.oauthbearer.internals.OAuthBearerRefreshingLogin",
            "sasl.client.callback.handler.class": f"{KAFKA}.oauthbearer.internals."
            "OAuthBearerSaslClientCallbackHandler",
        }
    )
    assert isinstance(found, UnsecuredTokens)


@pytest.mark.parity("security: Java class names", differs="java-classes")
@pytest.mark.parametrize(
    "setting", ["sasl.login.callback.handler.class", "sasl.client.callback.handler.class"]
)
def test_a_function_of_ones_own_gives_user_and_password(setting: str) -> None:
    found = _login({**SASL, "sasl.mechanism": "PLAIN", setting: "vault.login:ask"})
    assert isinstance(found, PasswordFunction)
    assert (found.function.setting, found.function.name) == (f"kafka.{setting}", "vault.login:ask")


# --- tokens --------------------------------------------------------------------------------------
def test_nothing_says_where_tokens_come_from() -> None:
    for config in ({}, {"sasl.jaas.config": f"{OAUTH_MODULE} required;"}):
        assert "nothing says where tokens come from; expected kafka.sasl.login.callback" in (
            _refusal({**OAUTH, **config})
        )
    assert "expected " + OAUTH_MODULE in _refusal({**OAUTH, "sasl.jaas.config": jaas("PLAIN")})


@pytest.mark.parity("security: jaas: OAuthBearerLoginModule")
def test_options_of_the_login_module_give_an_unsecured_token() -> None:
    assert isinstance(_login({**OAUTH, "sasl.jaas.config": jaas("OAUTHBEARER")}), UnsecuredTokens)
    text = _refusal(
        {**OAUTH, "sasl.jaas.config": f'{OAUTH_MODULE} required unsecuredLoginStringClaim_x="y";'}
    )
    assert 'expected the option unsecuredLoginStringClaim_sub="alice"' in text


@pytest.mark.parity("security: OAUTHBEARER client credentials")
@pytest.mark.parametrize("handler", [None, FROM_ENDPOINT, f"kafkashaded.{FROM_ENDPOINT}"])
def test_client_credentials(handler: str | None) -> None:
    config = f'{OAUTH_MODULE} required clientId="job" clientSecret="s3cret" scope="klog"'
    given = {
        **OAUTH,
        "sasl.jaas.config": f'{config} extension_logicalCluster="lkc" ssl.truststore.type="PEM" '
        'ssl.truststore.location="/ca.pem";',
        "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
        "sasl.login.connect.timeout.ms": "5000",
        "sasl.login.refresh.window.factor": "0.9",
    }
    if handler:
        given["sasl.login.callback.handler.class"] = handler
    sasl = _security(given).sasl
    login = sasl.login
    assert isinstance(login, ClientCredentials)
    assert (login.client_id, login.client_secret, login.scope) == ("job", Secret("s3cret"), "klog")
    assert login.url == "https://idp.example/token"
    assert login.extensions == {"logicalCluster": "lkc"}
    assert login.tls.trust.location == "/ca.pem"
    assert login.connect_timeout_ms == 5_000
    assert sasl.renewal == Renewal(0.9, 300_000, 60_000)


@pytest.mark.parity("security: OAUTHBEARER client credentials")
def test_client_credentials_as_settings() -> None:
    given = {
        **OAUTH,
        "sasl.oauthbearer.token.endpoint.url": "http://localhost/token",
        "sasl.oauthbearer.client.credentials.client.id": "job",
        "sasl.oauthbearer.client.credentials.client.secret": "s3cret",
        "sasl.oauthbearer.scope": "klog",
        "sasl.oauthbearer.header.urlencode": "true",
    }
    login = _login(given)
    assert (login.client_id, login.client_secret, login.scope) == ("job", Secret("s3cret"), "klog")
    assert login.url_encode


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "kafka.sasl.oauthbearer.token.endpoint.url is missing; expected the https address"),
        ({"sasl.oauthbearer.token.endpoint.url": "idp"}, "is 'idp'; expected https://"),
        (
            {"sasl.oauthbearer.token.endpoint.url": "https://job:HIDDEN@idp/token"},
            "token.endpoint.url has a user before the host's name; expected https://host/path, and",
        ),
        (
            {"sasl.oauthbearer.token.endpoint.url": "https://idp"},
            f"has no value for option clientId; expected {OAUTH_MODULE} required",
        ),
        (
            {
                "sasl.oauthbearer.token.endpoint.url": "https://idp",
                "sasl.oauthbearer.client.credentials.client.id": "job",
            },
            "has no value for option clientSecret",
        ),
        (
            {"sasl.oauthbearer.assertion.private.key.file": "/k"},
            "kafka.sasl.oauthbearer.assertion.private.key.file is not supported: signed assertions",
        ),
        (
            {"sasl.oauthbearer.jwt.retriever.class": f"{KAFKA}.oauthbearer.JwtBearerJwtRetriever"},
            "and klog has no Java class of this name; expected module:callable",
        ),
        (
            {
                "sasl.oauthbearer.token.endpoint.url": "file:///t",
                "sasl.login.refresh.window.factor": "2",
            },
            "kafka.sasl.login.refresh.window.factor is '2'; expected a number from 0.5 to 1.0",
        ),
    ],
)
def test_what_an_endpoint_needs(given: dict[str, str], words: str) -> None:
    handler = {"sasl.login.callback.handler.class": FROM_ENDPOINT}
    assert words in _refusal({**OAUTH, **handler, **given})


def test_other_sources_of_tokens() -> None:
    handler = {"sasl.login.callback.handler.class": FROM_ENDPOINT}
    url = {"sasl.oauthbearer.token.endpoint.url": "file:///run/token"}
    assert _login({**OAUTH, **handler, **url}) == TokenFile(
        "kafka.sasl.oauthbearer.token.endpoint.url", "/run/token", {}
    )
    retriever = {"sasl.oauthbearer.jwt.retriever.class": "own.tokens:get"}
    assert isinstance(_login({**OAUTH, **handler, **retriever}), TokenFunction)
    assert isinstance(_login({**OAUTH, **retriever}), TokenFunction)
    known = {"sasl.oauthbearer.jwt.retriever.class": f"{KAFKA}.oauthbearer.FileJwtRetriever"}
    assert isinstance(_login({**OAUTH, **handler, **url, **known}), TokenFile)


# --- TLS -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ssl.truststore.type": "BKS"}, "kafka.ssl.truststore.type is 'BKS'; expected PEM or"),
        ({"ssl.truststore.password": "HIDDEN"}, "password is given without kafka.ssl.truststore.l"),
        (
            {"ssl.truststore.location": "/t", "ssl.truststore.certificates": "HIDDEN"},
            "kafka.ssl.truststore.location and kafka.ssl.truststore.certificates are given",
        ),
        (
            {"ssl.truststore.certificates": "HIDDEN", "ssl.truststore.type": "JKS"},
            "kafka.ssl.truststore.certificates is PEM text, and kafka.ssl.truststore.type is JKS",
        ),
        (
            {
                "ssl.truststore.location": "/t",
                "ssl.truststore.type": "pem",
                "ssl.truststore.password": "HIDDEN",
            },
            "kafka.ssl.truststore.password is not for type PEM: leave it out",
        ),
        ({"ssl.keystore.key": "HIDDEN"}, "expected kafka.ssl.keystore.key and kafka.ssl.keystore."),
        ({"ssl.keystore.certificate.chain": "HIDDEN"}, "together; one is set"),
        ({"ssl.keystore.password": "HIDDEN"}, "is given without kafka.ssl.keystore.location"),
        (
            {"ssl.keystore.location": "/k", "ssl.keystore.key": "HIDDEN"},
            "kafka.ssl.keystore.location is given together with kafka.ssl.keystore.key",
        ),
        (
            {
                "ssl.keystore.key": "HIDDEN",
                "ssl.keystore.certificate.chain": "HIDDEN",
                "ssl.keystore.type": "PKCS12",
            },
            "kafka.ssl.keystore.key is PEM text, and kafka.ssl.keystore.type is PKCS12: set PEM",
        ),
        (
            {
                "ssl.keystore.location": "/k",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.password": "HIDDEN",
            },
            "not for type PEM: leave it out, and set the password of a private key",
        ),
        ({"ssl.endpoint.identification.algorithm": "LDAPS"}, "is 'LDAPS'; expected https, or noth"),
        ({"ssl.enabled.protocols": "SSLv3"}, "kafka.ssl.enabled.protocols has 'SSLv3'; expected"),
        ({"ssl.protocol": "SSL"}, "kafka.ssl.protocol has 'SSL'; expected TLSv1.2, TLSv1.3"),
        (
            {"ssl.enabled.protocols": "TLSv1.1,TLSv1"},
            "kafka.ssl.enabled.protocols has 'TLSv1.1'; expected TLSv1.2, TLSv1.3",
        ),
        ({"ssl.protocol": "TLSv1"}, "kafka.ssl.protocol has 'TLSv1'; expected TLSv1.2, TLSv1.3"),
        (
            {"ssl.enabled.protocols": "TLSv1.3", "ssl.protocol": "TLSv1.2"},
            "has only versions that are newer than kafka.ssl.protocol, TLSv1.2",
        ),
    ],
)
def test_settings_of_tls_that_cannot_be(given: dict[str, str], words: str) -> None:
    text = _refusal({**SSL, **given})
    assert words in text
    assert "HIDDEN" not in text


@pytest.mark.parity("security: host name verification")
def test_host_names_are_checked_unless_the_setting_is_empty() -> None:
    name = "ssl.endpoint.identification.algorithm"
    assert _security(SSL).tls.check_host_name
    assert _security({**SSL, name: "HTTPS"}).tls.check_host_name
    assert not _security({**SSL, name: ""}).tls.check_host_name
    assert not _security({**SSL, name: " "}).tls.check_host_name


@pytest.mark.parametrize(
    ("given", "versions"),
    [
        ({}, ("TLSv1.2", "TLSv1.3")),
        ({"ssl.protocol": "TLSv1.2"}, ("TLSv1.2",)),
        ({"ssl.protocol": "TLS"}, ("TLSv1.2", "TLSv1.3")),
        ({"ssl.enabled.protocols": "TLSv1.3, TLSv1.1"}, ("TLSv1.3",)),
        # Kafka's default before 2.5
        ({"ssl.enabled.protocols": "TLSv1.2,TLSv1.1,TLSv1"}, ("TLSv1.2",)),
        ({"ssl.enabled.protocols": ""}, ("TLSv1.2", "TLSv1.3")),
    ],
)
def test_versions_of_tls(given: dict[str, str], versions: tuple[str, ...]) -> None:
    assert _security({**SSL, **given}).tls.versions == versions


# --- secrets -------------------------------------------------------------------------------------
SECRETS = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": f'{OAUTH_MODULE} required clientId="job" clientSecret="HIDDEN";',
    "sasl.oauthbearer.token.endpoint.url": "https://idp",
    "sasl.oauthbearer.client.credentials.client.secret": "HIDDEN",
    "ssl.truststore.location": "/t",
    "ssl.truststore.password": "HIDDEN",
    "ssl.keystore.key": "HIDDEN",
    "ssl.keystore.certificate.chain": "HIDDEN",
    "ssl.key.password": "HIDDEN",
    "ssl.engine.factory.class": "a:b",
}


@pytest.mark.parity("security: secrets stay secret")
def test_no_form_of_the_settings_shows_a_secret() -> None:
    settings = ClientSettings(SECRETS)
    for found in (settings, settings.security, pickle.loads(pickle.dumps(settings))):
        for text in (repr(found), str(found), f"{found}", "%s" % found):  # noqa: UP031
            assert "HIDDEN" not in text
    assert "'sasl.jaas.config': ***" in repr(settings)
    options = {f"kafka.{name}": value for name, value in SECRETS.items()}
    read = read_options({**options, "kafka.bootstrap.servers": "b:1", "subscribe": "t"})
    assert "HIDDEN" not in repr(read)
    assert "HIDDEN" not in repr(read.for_batch())


def test_settings_with_secrets_key_a_cache() -> None:
    one, same = ClientSettings(SECRETS), ClientSettings(SECRETS)
    other = ClientSettings({**SECRETS, "ssl.key.password": "other"})
    assert one == same == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(same)
    assert one != other


def test_a_secret_gives_itself_away_by_reveal_alone() -> None:
    secret = Secret("HIDDEN")
    assert secret.reveal() == "HIDDEN"
    assert [repr(secret), str(secret), f"{secret:>5}", f"{secret!r}"] == [
        "***",
        "***",
        "  ***",
        "***",
    ]
    assert copy.deepcopy(secret) == secret == pickle.loads(pickle.dumps(secret))
    assert secret != "HIDDEN"
    assert not Secret("")
    with pytest.raises(TypeError):
        list(secret)  # type: ignore[call-overload]
    with pytest.raises(AttributeError):
        secret.text = "x"  # type: ignore[attr-defined]
