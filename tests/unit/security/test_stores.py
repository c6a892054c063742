"""Truststores and keystores in every form that is taken, and OpenSSL's context made of them."""

import builtins
import socket
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import UnsupportedAlgorithm

from pyspark_klog.client.errors import SettingError
from pyspark_klog.client.security.stores import own_key, trusted_certificates
from pyspark_klog.client.security.tls import Tls, make_context
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.security.pem import certificates_of, key_of, pem_blocks
from pyspark_klog.security.tls_config import TlsConfig
from tests.support.security.certs import KEY_PASSWORD, STORE_PASSWORD, Authority, Identity

ENGINES: list[dict[str, str | None]] = []


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def client(authority: Authority) -> Identity:
    return authority.issue("client")


def tls(given: Mapping[str, str]) -> TlsConfig:
    named = {"security.protocol": "SSL"} | {f"ssl.{k}": v for k, v in given.items()}
    security = ClientSettings(named, prefix="kafka.").security
    assert security is not None
    assert security.tls is not None
    return security.tls


def refusal(given: Mapping[str, str]) -> str:
    with pytest.raises(SettingError) as caught:
        make_context(tls(given))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def trusted(given: Mapping[str, str]) -> int:
    """How many authorities a context trusts."""
    return len(make_context(tls(given)).get_ca_certs())


# --- truststores ---------------------------------------------------------------------------------
@pytest.mark.parity("security: PEM stores")
def test_a_truststore_in_pem(authority: Authority) -> None:
    assert trusted({"truststore.location": str(authority.pem_file())}) == 1
    assert trusted({"truststore.location": str(authority.pem_file()), "truststore.type": "PEM"})
    assert trusted({"truststore.certificates": authority.pem, "truststore.type": "PEM"}) == 1
    two = authority.pem + "Bag Attributes\n" + Authority(authority.folder / "other").pem
    assert trusted({"truststore.certificates": two}) == 2


@pytest.mark.parametrize("joint", [" ", "\\n", "\r\n", "\n\n"])
def test_pem_on_one_line_as_java_takes_it(authority: Authority, joint: str) -> None:
    text = joint.join(authority.pem.splitlines())
    assert certificates_of(text) == authority.pem
    assert trusted({"truststore.certificates": text}) == 1


@pytest.mark.parity("security: PKCS12 stores")
@pytest.mark.parametrize("kind", [{}, {"truststore.type": "PKCS12"}, {"truststore.type": "JKS"}])
def test_a_truststore_in_pkcs12(authority: Authority, kind: dict[str, str]) -> None:
    store = {"truststore.location": str(authority.pkcs12_file()), **kind}
    assert trusted({**store, "truststore.password": STORE_PASSWORD}) == 1
    text = refusal({**store, "truststore.password": "HIDDEN"})
    assert text.endswith("kafka.ssl.truststore.password is wrong, or the file is damaged")
    assert "HIDDEN" not in text
    assert "kafka.ssl.truststore.password is missing" in refusal(store)


@pytest.mark.parity("security: JKS stores", differs="jks-stores")
def test_a_jks_store_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    path = tmp_path / "trust.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    for name in ("truststore", "keystore"):
        assert refusal({f"{name}.location": str(path), f"{name}.password": "HIDDEN"}) == (
            f"kafka.ssl.{name}.location {path} is a JKS store, which only Java reads; convert it "
            f"with: keytool -importkeystore -srckeystore {path} -destkeystore "
            f"{path.with_suffix('.p12')} -deststoretype PKCS12, and set kafka.ssl.{name}.location "
            "to the new file"
        )


def test_files_that_are_no_stores(tmp_path: Path, authority: Authority, client: Identity) -> None:
    absent, odd = tmp_path / "absent.pem", tmp_path / "odd"
    assert refusal({"truststore.location": str(absent)}) == (
        f"kafka.ssl.truststore.location {absent} cannot be read here: No such file or directory; "
        "expected a file that the driver and every executor can read"
    )
    odd.write_bytes(b"nothing")
    assert "is neither PEM nor PKCS12" in refusal({"truststore.location": str(odd)})
    p12 = {"truststore.location": str(authority.pkcs12_file()), "truststore.type": "PEM"}
    assert "is not PEM, and kafka.ssl.truststore.type is PEM; is it PKCS12?" in refusal(p12)
    odd.write_bytes(b"\x30" + b"\0" * (16 << 20))
    assert "has more than 16777216 bytes" in refusal({"truststore.location": str(odd)})
    odd.write_text(client.key_pem)
    assert "has no certificate" in refusal({"truststore.location": str(odd)})
    damaged = authority.pem.replace("MII", "AAA", 1)
    text = refusal({"truststore.certificates": damaged})
    assert text.startswith("kafka.ssl.truststore has a damaged certificate")


def test_pkcs12_without_cryptography(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.delitem(sys.modules, name)
    true_import = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return true_import(name, *rest, **more)

    path = authority.folder / "truststore.p12"
    config = tls({"truststore.location": str(path), "truststore.password": STORE_PASSWORD})
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SettingError) as caught:
        make_context(config)
    assert str(caught.value) == (
        f"kafka.ssl.truststore.location {path} is PKCS12, which needs the package cryptography "
        "here and on every executor: pip install 'pyspark-klog[security]'; or convert it to PEM "
        f"with: openssl pkcs12 -in {path} -out store.pem"
    )


# --- keystores -----------------------------------------------------------------------------------
@pytest.mark.parity("security: PEM stores")
def test_a_pkcs12_store_of_an_older_java(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(content: bytes, password: bytes | None) -> None:
        raise UnsupportedAlgorithm("RC2-40")

    monkeypatch.setattr("cryptography.hazmat.primitives.serialization.pkcs12.load_pkcs12", load)
    path = authority.pkcs12_file()
    assert refusal({"truststore.location": str(path), "truststore.password": "p"}) == (
        f"kafka.ssl.truststore.location {path} is encrypted in a way that is no longer supported "
        f"(Java before 8u301 wrote such stores); write it again with a newer Java's keytool: "
        f"keytool -importkeystore -srckeystore {path} -destkeystore new.p12 -deststoretype PKCS12"
    )


@pytest.mark.parametrize("damage", [b"", b"\x30", b"\x30\x82\xff\xff", bytes(100), b"\xff" * 50])
def test_a_damaged_pkcs12_store(authority: Authority, tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "damaged.p12"
    path.write_bytes(b"\x30" + damage + authority.pkcs12_file().read_bytes()[40:])
    text = refusal({"truststore.location": str(path), "truststore.password": STORE_PASSWORD})
    assert text == (
        f"kafka.ssl.truststore.location {path} cannot be opened: kafka.ssl.truststore.password is "
        "wrong, or the file is damaged"
    )


def test_a_keystore_in_pem(client: Identity) -> None:
    make_context(tls({"keystore.location": str(client.pem_file())}))
    encrypted = {"keystore.location": str(client.pem_file(encrypted=True))}
    make_context(tls({**encrypted, "key.password": KEY_PASSWORD}))
    assert refusal(encrypted) == (
        "kafka.ssl.keystore has a private key that cannot be used: is kafka.ssl.key.password "
        "missing?"
    )
    assert "is kafka.ssl.key.password right?" in refusal({**encrypted, "key.password": "HIDDEN"})
    texts = {"keystore.key": client.key_pem, "keystore.certificate.chain": client.chain_pem}
    make_context(tls({**texts, "keystore.type": "PEM"}))
    one_line = {name: " ".join(text.splitlines()) for name, text in texts.items()}
    make_context(tls(one_line))
    encrypted_text = {**texts, "keystore.key": client.encrypted_key_pem}
    make_context(tls({**encrypted_text, "key.password": KEY_PASSWORD}))


def test_keys_that_do_not_fit(authority: Authority, client: Identity) -> None:
    other = authority.issue("other")
    given = {"keystore.key": client.key_pem, "keystore.certificate.chain": other.chain_pem}
    assert "its certificate is for another key" in refusal(given)
    given = {"keystore.key": client.chain_pem, "keystore.certificate.chain": client.chain_pem}
    assert "kafka.ssl.keystore.key with kafka.ssl.keystore.certificate.chain has no private" in (
        refusal(given)
    )
    assert "has no certificate; expected a private key and certificates" in refusal(
        {"keystore.key": client.key_pem, "keystore.certificate.chain": "nothing"}
    )


@pytest.mark.parity("security: PKCS12 stores")
def test_a_keystore_in_pkcs12(authority: Authority, client: Identity) -> None:
    given = {"keystore.location": str(client.pkcs12_file()), "keystore.password": STORE_PASSWORD}
    make_context(tls({**given, "key.password": STORE_PASSWORD}))
    key = own_key(tls(given).own)
    labels = [label for label, _ in pem_blocks(key.pem.reveal())]
    assert labels == ["ENCRYPTED PRIVATE KEY", "CERTIFICATE", "CERTIFICATE"]
    assert "PRIVATE" not in repr(key)
    trust = {"keystore.location": str(authority.pkcs12_file()), "keystore.password": STORE_PASSWORD}
    assert "has no private key with a certificate; is it a truststore?" in refusal(trust)


def test_without_a_truststore_this_system_s_authorities_are_trusted() -> None:
    expected = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    expected.load_default_certs()
    made = make_context(tls({}))
    assert made.cert_store_stats() == expected.cert_store_stats()
    assert made.verify_mode is ssl.CERT_REQUIRED


def test_keys_of_older_forms() -> None:
    headers = "Proc-Type: 4,ENCRYPTED\n\nAAAA"
    old = f"-----BEGIN RSA PRIVATE KEY-----\n{headers}\n-----END RSA PRIVATE KEY-----"
    assert key_of(old).splitlines()[1:3] == ["Proc-Type: 4,ENCRYPTED", ""]
    assert key_of("nothing") == ""


# --- the context ---------------------------------------------------------------------------------
def test_versions_and_cipher_suites() -> None:
    made = make_context(tls({"enabled.protocols": "TLSv1.3"}))
    assert made.minimum_version is ssl.TLSVersion.TLSv1_3
    made = make_context(tls({}))
    assert made.minimum_version is ssl.TLSVersion.TLSv1_2
    assert made.maximum_version is ssl.TLSVersion.TLSv1_3
    assert ssl.OP_NO_RENEGOTIATION in made.options
    suites = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
    made = make_context(tls({"cipher.suites": suites}))
    assert made.maximum_version is ssl.TLSVersion.TLSv1_2
    names = [each["name"] for each in made.get_ciphers() if not each["name"].startswith("TLS_")]
    assert sorted(names) == ["ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-AES128-GCM-SHA256"]
    made = make_context(tls({"cipher.suites": "TLS_AES_256_GCM_SHA384"}))
    assert made.minimum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
    ],
)
def test_names_of_cipher_suites(suite: str, name: str) -> None:
    made = make_context(tls({"cipher.suites": suite}))
    assert name in [each["name"] for each in made.get_ciphers()]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cipher.suites": "ECDHE"}, "has 'ECDHE'; expected IANA's names, as in TLS_ECDHE"),
        ({"cipher.suites": "TLS_NO_WITH_SUCH"}, "kafka.ssl.cipher.suites has none that OpenSSL"),
        (
            {"cipher.suites": "TLS_AES_128_GCM_SHA256", "protocol": "TLSv1.2"},
            "kafka.ssl.cipher.suites has no suite for TLSv1.2 of kafka.ssl.enabled.protocols",
        ),
    ],
)
def test_cipher_suites_that_cannot_be(given: dict[str, str], words: str) -> None:
    assert words in refusal(given)


def test_host_names_are_checked_by_the_context() -> None:
    assert make_context(tls({})).check_hostname
    made = make_context(tls({"endpoint.identification.algorithm": ""}))
    assert not made.check_hostname
    assert made.verify_mode is ssl.CERT_REQUIRED


def engine(settings: dict[str, str | None]) -> object:
    ENGINES.append(settings)
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if settings["ssl.key.password"] else "nothing"


@pytest.mark.parity("security: Java class names", differs="java-classes")
def test_a_context_of_ones_own() -> None:
    given = {"engine.factory.class": f"{__name__}:engine", "key.password": "p"}
    assert isinstance(make_context(tls(given)), ssl.SSLContext)
    assert ENGINES[-1]["ssl.endpoint.identification.algorithm"] == "https"
    assert refusal({"engine.factory.class": f"{__name__}:engine"}) == (
        f"kafka.ssl.engine.factory.class: {__name__}:engine gave str; expected an ssl.SSLContext"
    )


def failing_engine(_: dict[str, str | None]) -> object:
    raise ValueError("HIDDEN")


def test_what_a_function_for_the_context_raises_is_not_repeated() -> None:
    ours, other = socket.socketpair()
    config = tls({"engine.factory.class": f"{__name__}:failing_engine"})
    with other, pytest.raises(SettingError) as caught:
        Tls(config).wrap(ours, "localhost", "localhost:9093")
    assert str(caught.value) == (
        f"kafka.ssl.engine.factory.class: {__name__}:failing_engine raised ValueError; it must "
        "give an ssl.SSLContext"
    )
    assert ours.fileno() == -1


def test_a_store_that_changes_is_read_again(authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(authority.pem)
    held = Tls(tls({"truststore.location": str(path)}))
    first = held.context()
    assert held.context() is first
    path.write_text(authority.pem + Authority(tmp_path / "new", "new").pem)
    assert len(held.context().get_ca_certs()) == 2


def test_trusted_certificates_come_as_pem(authority: Authority) -> None:
    store = tls({"truststore.location": str(authority.pem_file())}).trust
    assert trusted_certificates(store) == authority.pem
