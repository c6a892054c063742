"""Settings of the client: Kafka's names, typed, bounded; the rest is refused or warned of."""

import logging
import pickle

import pytest

from pyspark_klog.client.errors import SettingError
from pyspark_klog.client.producer.row_encoder import compression_level
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.client.settings.setting_rows import SETTINGS, Effect
from pyspark_klog.client.transport.addresses import Address, read_addresses


def test_defaults_are_kafkas() -> None:
    settings = ClientSettings({})
    assert settings.number("request.timeout.ms") == 30_000
    assert settings.number("max.partition.fetch.bytes") == 4_194_304
    assert settings.text("isolation.level") == "read_uncommitted"
    assert settings.flag("enable.idempotence") is True
    assert not settings.is_given("request.timeout.ms")


def test_values_are_read_as_kafka_reads_them() -> None:
    settings = ClientSettings(
        {"retries": " 7 ", "check.crcs": "FALSE", "acks": "-1", "compression.type": "ZSTD"}
    )
    assert settings.number("retries") == 7
    assert settings.flag("check.crcs") is False
    assert settings.text("acks") == "all"
    assert settings.text("compression.type") == "zstd"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"fetch.max.byte": "1"}, ["fetch.max.byte", "did you mean fetch.max.bytes?"]),
        ({"request.timeout.ms": "soon"}, ["request.timeout.ms", "'soon'", "whole number"]),
        ({"request.timeout.ms": "0"}, ["request.timeout.ms", "1 to 2147483647"]),
        ({"check.crcs": "1"}, ["check.crcs", "true or false"]),
        ({"acks": "2"}, ["acks", "all, -1, 0, 1"]),
        ({"security.protocol": "TLS"}, ["security.protocol", "PLAINTEXT, SSL, SASL_PLAINTEXT"]),
        ({"transactional.id": "a"}, ["transactional.id", "not supported yet"]),
        ({"acks": "1", "enable.idempotence": "true"}, ["enable.idempotence", "acks=all"]),
        ({"compression.gzip.level": "0"}, ["compression.gzip.level", "-1, or 1 to 9"]),
        ({"delivery.timeout.ms": "10"}, ["delivery.timeout.ms", "request.timeout.ms"]),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    given: dict[str, str | int | bool | None], words: list[str]
) -> None:
    with pytest.raises(SettingError) as caught:
        ClientSettings(given)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_messages_show_the_option_as_the_user_wrote_it() -> None:
    with pytest.raises(SettingError, match=r"kafka\.acks is 'x'"):
        ClientSettings({"acks": "x"}, prefix="kafka.")


def test_other_acks_switch_idempotence_off() -> None:
    assert ClientSettings({"acks": "1"}).flag("enable.idempotence") is False
    many = ClientSettings({"max.in.flight.requests.per.connection": 6})
    assert many.flag("enable.idempotence") is False


def test_a_setting_without_effect_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ClientSettings({"metrics.num.samples": "3"}).warn_of_ignored()
        ClientSettings({"metrics.num.samples": "4"}).warn_of_ignored()
    assert [r for r in caplog.messages if "metrics.num.samples" in r] == [
        "setting=metrics.num.samples is accepted without effect: the setting belongs to the JVM"
    ]


def test_a_longer_request_timeout_alone_makes_the_delivery_timeout_as_long() -> None:
    settings = ClientSettings({"request.timeout.ms": "200000"})
    assert settings.number("delivery.timeout.ms") == 200_000


def test_settings_key_a_cache_and_travel() -> None:
    one, same = ClientSettings({"acks": "all"}), ClientSettings({"acks": "-1"})
    assert one == same
    assert hash(one) == hash(same)
    assert pickle.loads(pickle.dumps(one)) == one
    assert one != ClientSettings({"acks": "0"})


def test_every_row_says_what_it_does() -> None:
    for row in SETTINGS.values():
        assert row.doc or row.without, row.name
        assert row.effect is Effect.APPLIED or row.without, row.name


def test_addresses() -> None:
    assert read_addresses("a:1, PLAINTEXT://b:2,[::1]:3,a:1") == [
        Address("a", 1),
        Address("b", 2),
        Address("::1", 3),
    ]
    assert str(Address("::1", 3)) == "[::1]:3"


@pytest.mark.parametrize("scheme", ["http", "https", "HTTP", "kafka", "tcp", "zk+x", ""])
def test_an_address_of_another_server_than_a_broker_is_refused(scheme: str) -> None:
    with pytest.raises(SettingError) as caught:
        read_addresses(f"a:1,{scheme}://b:8080", "kafka.bootstrap.servers")
    assert str(caught.value) == (
        f"kafka.bootstrap.servers has '{scheme}://b:8080'; expected host:port of a Kafka listener, "
        f"as in localhost:9092, without {scheme}://"
    )
    assert read_addresses("SASL_SSL://b:2, INNER_1://c:3") == [Address("b", 2), Address("c", 3)]


@pytest.mark.parametrize("text", ["", " , ", "host", "host:", ":9092", "host:x", "host:70000"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(SettingError, match=r"kafka\.bootstrap\.servers"):
        read_addresses(text, "kafka.bootstrap.servers")


@pytest.mark.parametrize(
    ("codec", "given", "level"),
    [
        ("zstd", "-1", -1),
        ("zstd", None, None),
        ("gzip", "-1", None),
        ("lz4", None, None),
        ("lz4", "3", 3),
        ("snappy", None, None),
    ],
)
def test_a_producer_compresses_with_the_level_of_its_codec(
    codec: str, given: str | None, level: int | None
) -> None:
    levels = {} if given is None else {f"compression.{codec}.level": given}
    assert compression_level(ClientSettings({"compression.type": codec, **levels})) == level
