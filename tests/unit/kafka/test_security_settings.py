"""librdkafka's settings of TLS and SASL become the client's own, or are refused."""

import ssl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_klog.client.security.tls import make_context
from pyspark_klog.kafka import KafkaException
from pyspark_klog.kafka._security_settings import TOKEN_FUNCTION, login_module
from pyspark_klog.security.jaas import read_jaas
from pyspark_klog.security.sasl_config import (
    ClientCredentials,
    PasswordLogin,
    SaslConfig,
    TokenFile,
    TokenFunction,
    TokenLogin,
    UnsecuredTokens,
)
from pyspark_klog.security.secret import Secret
from pyspark_klog.security.tls_config import TlsConfig
from tests.support.kafka.confluent_settings import (
    confluent_refusal,
    kind_of_refusal,
    own_refusal,
    own_settings,
)
from tests.support.security.certs import KEY_PASSWORD, STORE_PASSWORD, Authority, Identity

TLS = {"security.protocol": "SSL"}
SASL = {"security.protocol": "sasl_plaintext"}
TOKENS = {**SASL, "sasl.mechanism": "OAUTHBEARER"}
ENDPOINT = {
    **TOKENS,
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "s3cret",
    "sasl.oauthbearer.token.endpoint.url": "https://tokens/get",
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority whose files have a folder of their own."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def client(authority: Authority) -> Identity:
    """A client's key and certificate."""
    return authority.issue("client")


def _tls(settings: dict[str, Any]) -> TlsConfig:
    security = own_settings("producer", {**TLS, **settings}).client_settings.security
    assert security is not None and security.tls is not None
    return security.tls


def _sasl(settings: dict[str, Any]) -> SaslConfig:
    security = own_settings("consumer", settings).client_settings.security
    assert security is not None and security.sasl is not None
    return security.sasl


def _agree(settings: dict[str, Any]) -> str:
    """Check that both clients refuse settings with the same exception, and return klog's text."""
    own, theirs = own_refusal("producer", settings), confluent_refusal("producer", settings)
    assert kind_of_refusal(own) == kind_of_refusal(theirs) == "KafkaException _INVALID_ARG"
    return own


# --- TLS ------------------------------------------------------------------------------------------
def test_the_authority(authority: Authority) -> None:
    for settings in (
        {"ssl.ca.location": authority.pem_file()},
        {"ssl.ca.location": str(authority.pem_file())},
        {"ssl.ca.pem": authority.pem},
        {"ssl.truststore.location": str(authority.pem_file())},
        {"ssl.truststore.certificates": authority.pem, "ssl.truststore.type": "PEM"},
    ):
        (trusted,) = make_context(_tls(settings)).get_ca_certs(binary_form=True)
        assert trusted == ssl.PEM_cert_to_DER_cert(authority.pem)
    for settings in ({}, {"ssl.ca.location": "probe"}, {"ssl.ca.location": ""}):
        assert _tls(settings).trust is None


def test_the_key_and_certificate_of_a_client(client: Identity, tmp_path: Path) -> None:
    key, chain, encrypted = (tmp_path / name for name in ("key", "chain", "encrypted"))
    key.write_text(client.key_pem)
    chain.write_text(client.chain_pem)
    encrypted.write_text(client.encrypted_key_pem)
    both = str(client.pem_file())
    for settings in (
        {"ssl.key.location": str(key), "ssl.certificate.location": str(chain)},
        {"ssl.key.location": both, "ssl.certificate.location": both},
        {"ssl.key.pem": client.key_pem, "ssl.certificate.pem": client.chain_pem},
        {"ssl.key.pem": client.key_pem, "ssl.certificate.location": str(chain)},
        {"ssl.key.location": str(key), "ssl.certificate.pem": client.chain_pem},
        {
            "ssl.key.location": str(encrypted),
            "ssl.certificate.location": str(chain),
            "ssl.key.password": KEY_PASSWORD,
        },
        {
            "ssl.keystore.location": str(client.pkcs12_file()),
            "ssl.keystore.password": STORE_PASSWORD,
        },
    ):
        assert confluent_refusal("producer", {**TLS, **settings}) == ""
        assert _tls(settings).own is not None


def test_files_that_cannot_be_used(client: Identity, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(client.encrypted_key_pem)
    (tmp_path / "chain").write_text(client.chain_pem)
    key, chain = str(tmp_path / "key"), str(tmp_path / "chain")
    for settings, named in (
        ({"ssl.ca.location": "/nowhere"}, "ssl.ca.location /nowhere"),
        ({"ssl.ca.pem": "rubbish"}, "ssl.ca.pem"),
        (
            {"ssl.key.location": "/nowhere", "ssl.certificate.location": chain},
            "ssl.key.location /nowhere",
        ),
        (
            {"ssl.key.location": key, "ssl.certificate.location": "/nowhere"},
            "ssl.certificate.location /nowhere",
        ),
        (
            {"ssl.key.location": "/nowhere", "ssl.certificate.location": "/nowhere"},
            "/nowhere cannot be read",
        ),
        (
            {
                "ssl.key.location": key,
                "ssl.certificate.location": chain,
                "ssl.key.password": "wrong",
            },
            "ssl.key.password",
        ),
        (
            {"ssl.keystore.location": client.pkcs12_file(), "ssl.keystore.password": "wrong"},
            "ssl.keystore.password",
        ),
    ):
        text = _agree({**TLS, **settings})
        assert named in text and "wrong" not in text.replace(" is wrong", ""), text


def test_stores_that_contradict_each_other(authority: Authority, client: Identity) -> None:
    own = {"ssl.key.pem": client.key_pem, "ssl.certificate.pem": client.chain_pem}
    pem = str(client.pem_file())
    for settings, first, second in (
        (
            {"ssl.ca.location": str(authority.pem_file()), "ssl.ca.pem": authority.pem},
            *("ssl.ca.location", "ssl.ca.pem"),
        ),
        ({**own, "ssl.key.location": pem}, "ssl.key.location", "ssl.key.pem"),
        ({**own, "ssl.keystore.location": pem}, "ssl.keystore.location", "ssl.key.pem"),
        ({"ssl.key.pem": client.key_pem}, "ssl.certificate.pem", "is missing"),
        ({"ssl.certificate.pem": client.chain_pem}, "ssl.key.pem", "is missing"),
    ):
        refusal = own_refusal("producer", {**TLS, **settings})
        assert first in refusal and second in refusal and "PRIVATE" not in refusal
    assert "expected a file, not a directory" in own_refusal(
        "producer", {**TLS, "ssl.ca.location": str(authority.folder)}
    )


def test_the_check_of_the_host_name() -> None:
    assert _tls({}).check_host_name
    assert _tls({"ssl.endpoint.identification.algorithm": "HTTPS"}).check_host_name
    for off in ("none", ""):
        assert not _tls({"ssl.endpoint.identification.algorithm": off}).check_host_name


def test_the_verification_of_certificates_cannot_be_turned_off() -> None:
    name = "enable.ssl.certificate.verification"
    for value in (False, "false", "0"):
        refusal = own_refusal("producer", {**TLS, name: value})
        assert refusal.startswith("KafkaException _INVALID_ARG") and f"{name}=False" in refusal
        assert "ssl.ca.location" in refusal
        assert own_refusal("admin", {"security.protocol": "sasl_ssl", name: value}) == refusal
    assert own_refusal("producer", {**TLS, name: True}) == ""
    assert own_settings("producer", {name: False}).ignored == {
        name: "security.protocol is PLAINTEXT"
    }


@pytest.mark.parametrize(
    "name", ["ssl.crl.location", "ssl.curves.list", "ssl.sigalgs.list", "ssl.engine.location"]
)
def test_a_setting_of_tls_that_cannot_be_obeyed(name: str) -> None:
    refusal = own_refusal("consumer", {**TLS, name: "x"})
    assert f"{name}=x is not supported" in refusal and "ssl.engine.factory.class" in refusal
    assert name in own_settings("consumer", {name: "x"}).ignored


def test_ciphers_have_javas_names() -> None:
    assert "IANA" in own_refusal("producer", {**TLS, "ssl.cipher.suites": "AES128-SHA"})
    suite = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    assert _tls({"ssl.cipher.suites": suite}).cipher_suites == (suite,)


# --- SASL with passwords --------------------------------------------------------------------------
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_user_and_a_password(name: str, mechanism: str) -> None:
    password = "p\"a\\ss; required\nx='y' ä\""
    login = {name: mechanism, "sasl.username": 'al"ice', "sasl.password": password}
    expected = PasswordLogin(mechanism, 'al"ice', Secret(password))
    assert _sasl({**SASL, **login}).login == expected
    assert password not in repr(own_settings("producer", {**SASL, **login}))


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text())
def test_the_options_of_a_login_module_are_read_as_they_were(one: str, other: str) -> None:
    module = read_jaas(login_module("a.Module", {"one": one, "other": other}))
    assert module.class_name == "a.Module"
    assert module.options == {"one": Secret(one), "other": Secret(other)}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"sasl.mechanism": "GSSAPI"},
        {"sasl.mechanism": "PLAIN"},
        {"sasl.mechanism": "PLAIN", "sasl.username": "a"},
        {"sasl.mechanism": "PLAIN", "sasl.password": "b"},
        {"sasl.mechanism": "PLAIN", "sasl.username": "", "sasl.password": ""},
        {"sasl.mechanism": "plain", "sasl.username": "a", "sasl.password": "b"},
        {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "a"},
    ],
)
def test_an_incomplete_login(settings: dict[str, str]) -> None:
    _agree({**SASL, **settings})


def test_the_missing_part_of_a_login_is_named() -> None:
    plain = {**SASL, "sasl.mechanisms": "PLAIN"}
    assert "sasl.password is missing" in own_refusal("producer", {**plain, "sasl.username": "a"})
    assert "sasl.mechanisms=PLAIN" in own_refusal("producer", plain)


def test_javas_login_module() -> None:
    jaas = login_module(
        "org.apache.kafka.common.security.plain.PlainLoginModule",
        {"username": "alice", "password": "pw"},
    )
    settings = {**SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas.reveal()}
    assert _sasl(settings).login == PasswordLogin("PLAIN", "alice", Secret("pw"))
    refusal = own_refusal("producer", {**settings, "sasl.username": "bob"})
    assert "sasl.username and sasl.jaas.config are given" in refusal
    settings = {**SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": "rubbish"}
    assert "sasl.jaas.config" in own_refusal("producer", settings)


def test_a_login_without_effect() -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}
    ignored = own_settings("producer", login).ignored
    assert set(ignored) == set(login)
    assert set(own_settings("producer", {**ENDPOINT, "sasl.username": "a"}).ignored) == {
        "sasl.username"
    }
    tokens = {"sasl.oauthbearer.client.id": "me", "https.ca.pem": "rubbish"}
    assert own_settings("producer", {**SASL, **login, **tokens}).ignored == dict.fromkeys(
        tokens, "sasl.mechanism is not OAUTHBEARER"
    )


# --- tokens ---------------------------------------------------------------------------------------
def _login(settings: dict[str, Any]) -> TokenLogin:
    login = _sasl(settings).login
    assert isinstance(login, TokenFunction | TokenFile | UnsecuredTokens | ClientCredentials)
    return login


def test_tokens_of_an_endpoint(authority: Authority) -> None:
    login = _login(
        {
            **ENDPOINT,
            "sasl.oauthbearer.scope": "read",
            "https.ca.pem": authority.pem,
            "sasl.oauthbearer.extensions": "logicalCluster=one, pool=a=b",
        }
    )
    assert isinstance(login, ClientCredentials)
    assert (login.url, login.client_id) == ("https://tokens/get", "me")
    assert (login.client_secret, login.scope) == (Secret("s3cret"), "read")
    assert login.extensions == {"logicalCluster": "one", "pool": "a=b"}
    assert login.tls.trust is not None
    assert login.tls.trust.certificates == Secret(authority.pem)
    path = str(authority.pem_file())
    login = _login({**ENDPOINT, "https.ca.location": path})
    assert isinstance(login, ClientCredentials) and login.tls.trust is not None
    assert login.tls.trust.location == path
    file = {**TOKENS, "sasl.oauthbearer.token.endpoint.url": "file:///run/token"}
    assert isinstance(_login(file), TokenFile)


def test_an_incomplete_endpoint() -> None:
    for name in ("client.id", "client.secret", "token.endpoint.url"):
        settings = {each: value for each, value in ENDPOINT.items() if not each.endswith(name)}
        assert f"sasl.oauthbearer.{name}" in _agree(settings)
    for wrong in ("bad", "a=1,b", 'x" y="1=2'):
        refusal = own_refusal("producer", {**ENDPOINT, "sasl.oauthbearer.extensions": wrong})
        assert "expected name=value" in refusal
    both = {"https.ca.pem": "x", "https.ca.location": "probe"}
    _agree({**ENDPOINT, **both})


def test_tokens_of_a_callback() -> None:
    login = _login({**TOKENS, "oauth_cb": lambda config: (config, 0.0)})
    assert isinstance(login, TokenFunction) and login.function.name == TOKEN_FUNCTION
    with pytest.raises(RuntimeError, match="oauth_cb"):
        login.function.load()({})
    unsecured = {"enable.sasl.oauthbearer.unsecure.jwt": True}
    assert "oauth_cb" in _agree({**TOKENS, **unsecured, "oauth_cb": print})
    assert "oauth_cb" in own_refusal("producer", TOKENS)


def test_a_callback_replaces_an_endpoint() -> None:
    key = "sasl.oauthbearer.assertion.private.key.pem"
    settings = {**ENDPOINT, key: "rubbish", "sasl.oauthbearer.config": "c", "oauth_cb": print}
    found = own_settings("producer", settings)
    assert set(found.ignored.values()) == {"oauth_cb gives the tokens"}
    assert set(found.ignored) == {
        *(name for name in ENDPOINT if name.startswith("sasl.oauthbearer.")),
        key,
    }
    assert found["sasl.oauthbearer.config"] == Secret("c")


def test_tokens_without_a_signature() -> None:
    login = _login(
        {
            **TOKENS,
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": "principalClaimName=azp principal=admin scopeClaimName=roles"
            " scope=role1,role2 lifeSeconds=600 extension_traceId=123",
        }
    )
    assert isinstance(login, UnsecuredTokens)
    assert {name: value.reveal() for name, value in login.options.items()} == {
        "unsecuredLoginPrincipalClaimName": "azp",
        "unsecuredLoginStringClaim_azp": "admin",
        "unsecuredLoginListClaim_roles": ",role1,role2",
        "unsecuredLoginLifetimeSeconds": "600",
        "unsecuredLoginExtension_traceId": "123",
    }
    for wrong in ("", "principal=", "principal=a other=b", "principal=a extension_1=b", "bad"):
        refusal = own_refusal(
            "producer",
            {
                **TOKENS,
                "enable.sasl.oauthbearer.unsecure.jwt": True,
                "sasl.oauthbearer.config": wrong,
            },
        )
        assert "sasl.oauthbearer.config" in refusal


def test_signed_assertions_are_refused() -> None:
    for settings in (
        {"sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer"},
        {"sasl.oauthbearer.assertion.private.key.pem": "s3cret-key"},
        {"sasl.oauthbearer.assertion.algorithm": "ES256"},
        {"sasl.oauthbearer.assertion.file": "/assertion"},
        {"sasl.oauthbearer.assertion.jwt.template.file": "/template"},
        {"sasl.oauthbearer.metadata.authentication.type": "azure_imds"},
    ):
        refusal = own_refusal("producer", {**ENDPOINT, **settings})
        assert "is not supported" in refusal and "s3cret" not in refusal
        assert next(iter(settings)) in refusal


def test_javas_token_function() -> None:
    handler = {"sasl.login.callback.handler.class": "my.tokens:get"}
    login = _login({**TOKENS, **handler})
    assert isinstance(login, TokenFunction) and login.function.name == "my.tokens:get"
    assert "oauth_cb and sasl.login" in own_refusal(
        "producer", {**TOKENS, **handler, "oauth_cb": print}
    )
    with pytest.raises(KafkaException, match="expected one of them"):
        own_settings(
            "producer",
            {
                **TOKENS,
                **handler,
                "enable.sasl.oauthbearer.unsecure.jwt": True,
                "sasl.oauthbearer.config": "principal=a",
            },
        )
