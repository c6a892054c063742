"""Arguments of constructors, settings that contradict each other, and settings without effect."""

import logging
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from pyspark_klog.kafka import KafkaException
from pyspark_klog.kafka._settings import ClientKind, read_settings
from tests.support.kafka.confluent_settings import (
    confluent_refusal,
    kind_of_refusal,
    own_refusal,
    own_settings,
)

# --- arguments ------------------------------------------------------------------------------------
ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (({},), {}),
    (({"linger.ms": 5},), {}),
    (({},), {"linger.ms": "x"}),
    ((), {"linger.ms": 5}),
    ((), {"linger.ms": "x"}),
    ((), {"linger_ms": 5}),
    (({"linger.ms": "x"},), {"linger.ms": 5}),
    (({"linger.ms": 5},), {"linger.ms": "x"}),
    (({},), {"error_cb": print, "log_level": 3}),
    (({},), {"error_cb": None}),
    ((), {"conf": {"linger.ms": 5}}),
    ((None,), {}),
    (([],), {}),
    (({}, {}), {}),
    (({"default.topic.config": {"acks": 1}},), {}),
    (({"default.topic.config": {"acks": "x"}},), {}),
    (({"default.topic.config": {"topic.acks": 1, "linger.ms": 1}},), {}),
    (({"acks": "x", "default.topic.config": {"acks": 1}},), {}),
    (({1: 2},), {}),
]


@pytest.mark.parametrize(("args", "kwargs"), ARGUMENTS)
def test_the_arguments_of_a_constructor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert _outcome(lambda: read_settings("producer", args, kwargs)) == _outcome(
        lambda: Producer(*args, **kwargs)
    )


def _outcome(call: Any) -> tuple[str, str]:
    try:
        call()
    except Exception as error:
        code = getattr(error.args[0], "name", str)
        return type(error).__name__, code() if callable(code) else ""
    return "", ""


def test_a_client_without_arguments() -> None:
    with pytest.raises(TypeError, match="expected configuration dict"):
        read_settings("producer", (), {})
    with pytest.raises(TypeError, match="expected configuration dict"):
        Producer()  # type: ignore[call-overload]


def test_keywords_override_the_dict() -> None:
    found = read_settings("producer", ({"linger.ms": 1, "retries": 3},), {"linger.ms": 2})
    assert (found.fraction("linger.ms"), found.number("retries")) == (2.0, 3)


def test_the_dict_stays_as_it_is() -> None:
    given = {"acks": 1, "default.topic.config": {"acks": 0}}
    assert read_settings("producer", (given,), {})["acks"] == 0
    assert given == {"acks": 1, "default.topic.config": {"acks": 0}}


def test_a_consumer_needs_a_group() -> None:
    for client in (lambda: read_settings("consumer", ({},), {}), lambda: Consumer({})):
        with pytest.raises(ValueError, match=r"group\.id must be set"):
            client()
    # confluent_kafka ends the process at an empty group.
    for empty in ("", None):
        with pytest.raises(KafkaException, match=r"group\.id is empty"):
            read_settings("consumer", ({"group.id": empty},), {})


def test_the_callbacks() -> None:
    def report(*_: Any) -> None:
        """Do nothing."""

    names = ("error_cb", "stats_cb", "throttle_cb", "oauth_cb")
    logger = logging.getLogger("a program")
    given = dict.fromkeys(names, report) | {"logger": logger}
    own: dict[ClientKind, tuple[str, ...]] = {
        "producer": ("on_delivery",),
        "consumer": ("on_commit",),
        "admin": (),
    }
    for kind, others in own.items():
        found = own_settings(kind, given | dict.fromkeys(others, report))
        assert found.callbacks == dict.fromkeys((*names, *others), report)
        assert found["logger"] is logger
    found = own_settings("producer", {"partitioner": report})
    assert found.callbacks == {"partitioner": report} and found["partitioner"] is report


def test_a_callback_of_another_client_is_no_setting() -> None:
    pairs: list[tuple[ClientKind, str]] = [
        *(("producer", "on_commit"), ("consumer", "on_delivery")),
        *(("admin", "on_commit"), ("admin", "on_delivery")),
    ]
    for kind, name in pairs:
        refusal = own_refusal(kind, {name: print})
        assert kind_of_refusal(refusal) == kind_of_refusal(confluent_refusal(kind, {name: print}))
        assert "No such configuration property" in refusal


class Interceptor:
    """Sees each record before it is sent."""

    def on_send(self, record: Any) -> Any:
        """Return the record."""
        return record


def test_interceptors_are_objects() -> None:
    one = Interceptor()
    assert own_settings("producer", {"interceptor.classes": [one]})["interceptor.classes"] == (one,)
    for wrong in ("org.example.Interceptor", [object()], one):
        assert "a list of objects" in own_refusal("producer", {"interceptor.classes": wrong})


# --- combinations ---------------------------------------------------------------------------------
IDEMPOTENT: list[dict[str, Any]] = [
    *({"acks": acks} for acks in (0, 1, "all", -1)),
    *({"max.in.flight": count} for count in (5, 6)),
    *({"retries": count} for count in (0, 1)),
    *({"queuing.strategy": order} for order in ("fifo", "lifo")),
    {"topic.acks": 1},
    {"default.topic.config": {"acks": 1}},
]
TIMES: list[dict[str, Any]] = [
    *({"linger.ms": 1_000, "delivery.timeout.ms": time} for time in (0, 999, 1_000, 1_001)),
    *({"delivery.timeout.ms": time} for time in (0, 1)),
    *({"linger.ms": time} for time in (300_000, 900_000)),
    {"linger.ms": 0.5, "delivery.timeout.ms": 1},
    {"linger.ms": 5, "delivery.timeout.ms": 4, "request.timeout.ms": 900_000},
    {"reconnect.backoff.ms": 500, "reconnect.backoff.max.ms": 100},
    {"reconnect.backoff.ms": 20_000},
    {"retry.backoff.ms": 2_000, "retry.backoff.max.ms": 1_000},
    {"compression.type": "zstd", "compression.level": 12},
    {"compression.type": "gzip", "compression.level": 10},
]
TRANSACTIONAL: list[dict[str, Any]] = [
    *({"enable.idempotence": value} for value in (True, False)),
    *({"message.timeout.ms": time} for time in (0, 60_000, 60_001)),
    {"transaction.timeout.ms": 1_000},
    {"transaction.timeout.ms": 1_000, "message.timeout.ms": 1_001},
    {"transaction.timeout.ms": 2**31 - 1},
    {"transaction.timeout.ms": 1_000, "linger.ms": 1_000},
]
PRODUCERS = [
    *({"enable.idempotence": True, **each} for each in IDEMPOTENT),
    *({"enable.idempotence": False, **each} for each in IDEMPOTENT),
    *IDEMPOTENT,
    *({"transactional.id": "t", **each} for each in (*IDEMPOTENT, *TRANSACTIONAL)),
    {"transactional.id": "", "enable.idempotence": False},
    *TIMES,
]
CONSUMERS: list[dict[str, Any]] = [
    {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 7_000},
    *({"max.poll.interval.ms": time} for time in (44_999, 45_000)),
    *({"max.poll.interval.ms": time, "session.timeout.ms": 6_000} for time in (5_999, 6_000)),
    *({"fetch.max.bytes": size} for size in (999_999, 1_000_000, 2_147_483_135)),
    *({"fetch.max.bytes": size, "message.max.bytes": 5_000} for size in (4_999, 5_000)),
    *({"receive.message.max.bytes": size} for size in (1_000, 52_429_311, 52_429_312)),
    {"fetch.message.max.bytes": 100_000_000, "fetch.max.bytes": 1_000_000},
    *(
        {"partition.assignment.strategy": text}
        for text in ("range", "range, roundrobin", "range,", "", None, "cooperative-sticky")
    ),
    *(
        {"partition.assignment.strategy": text}
        for text in ("Range", "uniform", "range,cooperative-sticky")
    ),
    {"acks": 1, "enable.idempotence": True, "linger.ms": 5, "transactional.id": "t"},
    {"partitioner": "x"},
    {"group.protocol.type": "other"},
]
CASES: list[tuple[ClientKind, dict[str, Any]]] = [
    *(("producer", each) for each in PRODUCERS),
    *(("consumer", each) for each in CONSUMERS),
    *(("producer", {"max.poll.interval.ms": 1_000}), ("producer", {"fetch.max.bytes": 10})),
    *(("admin", {}), ("admin", {"linger.ms": "x"}), ("admin", {"group.id": "g"})),
]


@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_settings_together_as_in_confluent_kafka(
    kind: ClientKind, settings: dict[str, Any]
) -> None:
    own, theirs = own_refusal(kind, settings), confluent_refusal(kind, settings)
    assert kind_of_refusal(own) == kind_of_refusal(theirs), (own, theirs)


DIFFERENCES: list[tuple[ClientKind, dict[str, Any], str]] = [
    # The last one of two names counts there; topic settings of old consumers are separate there.
    ("producer", {"linger.ms": 5, "queue.buffering.max.ms": 7}, "names of one setting"),
    ("producer", {"topic.acks": 0, "acks": 1}, "names of one setting"),
    ("producer", {"socket.timeout.ms": 90, "request.timeout.ms": 80}, "names of one setting"),
    ("consumer", {"enable.auto.commit": 1, "auto.commit.enable": 0}, "names of one setting"),
    # Settings that klog's client cannot obey.
    ("producer", {"compression.type": "gzip", "compression.level": 0}, "expected -1, or 1 to 9"),
    ("consumer", {"group.protocol": "consumer"}, "only classic groups"),
    *(
        ("producer", {"security.protocol": "ssl", **settings}, text)
        for settings, text in (
            ({"enable.ssl.certificate.verification": False}, "is not supported"),
            ({"ssl.providers": "default,base"}, "is not supported"),
            ({"ssl.cipher.suites": "ECDHE-RSA-AES128-GCM-SHA256"}, "expected IANA's names"),
            ({"ssl.ca.location": "/etc"}, "expected a file, not a directory"),
        )
    ),
    # A login that cannot succeed.
    (
        "producer",
        {"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"},
        "nothing says where tokens come from",
    ),
]


@pytest.mark.parametrize(("kind", "settings", "text"), DIFFERENCES)
def test_settings_that_only_confluent_kafka_accepts(
    kind: ClientKind, settings: dict[str, Any], text: str
) -> None:
    assert confluent_refusal(kind, settings) == ""
    assert text in own_refusal(kind, settings)


def test_a_contradiction_names_both_settings() -> None:
    for settings in (
        {"enable.idempotence": True, "acks": 1},
        {"transactional.id": "t", "message.timeout.ms": 70_000},
        {"queue.buffering.max.ms": 10, "message.timeout.ms": 10},
    ):
        refusal = own_refusal("producer", settings)
        assert "contradicts" in refusal
        last = list(settings)[-1]
        assert last in refusal, refusal
    together = {"compression.type": "gzip", "compression.level": 5, "compression.gzip.level": 6}
    refusal = own_refusal("producer", together)
    assert "compression.level=5" in refusal and "compression.gzip.level=6" in refusal


def test_idempotence_ends_with_settings_that_contradict_its_default() -> None:
    for settings in ({"acks": 1}, {"max.in.flight": 6}, {"retries": 0}):
        found = own_settings("producer", settings)
        assert not found.flag("enable.idempotence")
        assert not found.client_settings.flag("enable.idempotence")
    assert own_settings("producer", {"retries": 1}).flag("enable.idempotence")


def test_values_that_follow_from_others() -> None:
    found = own_settings("producer", {"linger.ms": 900_000})
    assert found.number("delivery.timeout.ms") == 960_000
    found = own_settings("producer", {"delivery.timeout.ms": 3})
    assert found.fraction("linger.ms") == 2.0
    assert (
        own_settings("producer", {"delivery.timeout.ms": 0}).number("delivery.timeout.ms")
        == 2**31 - 1
    )
    found = own_settings("producer", {"transactional.id": "t", "transaction.timeout.ms": 9_000})
    assert found.number("delivery.timeout.ms") == 9_000
    found = own_settings("consumer", {"message.max.bytes": 10**8})
    assert found.number("fetch.max.bytes") == 10**8


def test_the_settings_of_the_client() -> None:
    client = own_settings(
        "producer",
        {
            "metadata.broker.list": "one, [::1]:7,PLAINTEXT://two:8",
            "acks": 1,
            "compression.codec": "gzip",
            "compression.level": 12,
            "max.request.size": 5_000,
            "buffer.memory": 70_000,
            "queue.buffering.max.kbytes": 10,
            "max.block.ms": 7,
            "delivery.timeout.ms": 100,
            "socket.timeout.ms": 9_000,
            "linger.ms": 0.5,
            "topic.metadata.refresh.interval.ms": 1_000,
            "connections.max.idle.ms": 0,
            "partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner",
        },
    ).client_settings
    assert client.text("bootstrap.servers") == "one:9092,[::1]:7,two:8"
    assert (client.text("acks"), client.number("compression.gzip.level")) == ("1", 9)
    assert (client.number("max.request.size"), client.number("buffer.memory")) == (5_000, 10_240)
    assert (client.number("max.block.ms"), client.number("request.timeout.ms")) == (7, 9_000)
    assert client.number("delivery.timeout.ms") == 9_000
    assert client.number("metadata.max.age.ms") == 1_000
    assert client.number("connections.max.idle.ms") == -1
    assert client.text("partitioner.class").endswith("RoundRobinPartitioner")
    client = own_settings("consumer", {"fetch.wait.max.ms": 7, "client.rack": "r"}).client_settings
    assert (client.number("fetch.max.wait.ms"), client.text("client.rack")) == (7, "r")
    assert client.text("isolation.level") == "read_committed"
    assert client.number("max.partition.fetch.bytes") == 1_048_576


# --- settings without effect ----------------------------------------------------------------------
def test_one_warning_for_each_setting_without_effect(caplog: pytest.LogCaptureFixture) -> None:
    given = {
        "debug": "all",
        "socket.nagle.disable": True,
        "session.timeout.ms": 9_000,
        "ssl.ca.location": "/nowhere",
        "linger.ms": 5,
        "sticky.partitioning.linger.ms": 7,
    }
    settings = own_settings("producer", given)
    assert caplog.messages == []
    settings.warn()
    warned = {record.args[0]: record.args[1] for record in caplog.records if record.args}  # type: ignore[index]
    assert set(warned) == set(given) - {"linger.ms"} == set(settings.ignored)
    assert len(caplog.records) == len(warned)
    assert warned["session.timeout.ms"] == "it is a setting of a consumer"
    assert warned["ssl.ca.location"] == "security.protocol is PLAINTEXT"


def test_the_limit_of_a_poll_names_what_to_use(caplog: pytest.LogCaptureFixture) -> None:
    own_settings("consumer", {"max.poll.records": 5}).warn()
    (message,) = caplog.messages
    assert "max.poll.records" in message and "num_messages" in message and "max_rows" in message


def test_the_defaults_that_differ_are_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    own_settings("producer", {}).log_differing_defaults()
    (message,) = caplog.messages
    assert "partitioner" in message and "enable.idempotence" in message
    caplog.clear()
    own_settings(
        "producer", {"partitioner": "random", "enable.idempotence": 0}
    ).log_differing_defaults()
    own_settings("consumer", {}).log_differing_defaults()
    assert caplog.messages == []
