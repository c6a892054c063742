"""klog's rows of settings against Kafka's own definitions, 3.9.1 and 4.3.1, and properties files.

3.9.1 is the reference for names, types, defaults and bounds; 4.3.1 for the changes of 4.x in
docs/configuration.md. Every difference is listed here with its reason.
"""

import random
from typing import NamedTuple

import pytest

from klog_broker.config import (
    SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    ConfigError,
    Listener,
    topic_config,
)
from klog_broker.config.changes_without_effect import (
    CHANGEABLE_FOR_ALL,
    CHANGEABLE_FOR_ONE,
    CHANGEABLE_LISTENER_SETTINGS,
)
from klog_broker.config.properties import parse_properties
from klog_broker.config.refused_settings import REFUSED
from klog_broker.config.setting_rows import DIFFERENT_DEFAULTS, KLOGS_OWN
from klog_broker.config.settings_without_effect import REASONS, SECRET_NAMES, SINCE_4
from klog_broker.config.types import AtLeast, Between, Bounds, Checked, OneOf, Setting, render
from klog_broker.topics.entries import topic_entries
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tests.support.config_bounds import DIFFERENT_BOUNDS
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer
from tests.support.protocol.kafka_definitions import run_java
from tools.docs.kafka4_settings import BROKER_CHANGES, TOPIC_CHANGES

pytestmark = pytest.mark.peers

# Names that Kafka reads in classes of their own, outside of its definitions.
NOT_DEFINED = {
    *("super.users", "allow.everyone.if.no.acl.found"),
    *("leader.replication.throttled.rate", "follower.replication.throttled.rate"),
    "replica.alter.log.dirs.io.max.bytes.per.second",
}

# Settings that 3.9 changes while it runs, and 4 does not have; and that klog does not change.
DROPPED = {"log.message.downconversion.enable", "log.message.timestamp.difference.max.ms"}
NOT_CHANGED = {"listeners", "listener.security.protocol.map"}


class Definition(NamedTuple):
    type: str
    default: str
    allowed: str
    is_internal: bool
    broker_name: str


def definitions(release: str) -> tuple[dict[str, Definition], dict[str, Definition]]:
    """The broker's and the topics' settings of a release."""
    found: dict[str, dict[str, Definition]] = {"broker": {}, "topic": {}}
    for line in run_java(release, "ConfigDefs.java"):
        kind, name, type_, default, allowed, internal, broker_name = line.split("\t")
        row = Definition(type_, default, allowed, internal == "true", broker_name)
        found[kind][name] = row
    return found["broker"], found["topic"]


@pytest.fixture(scope="module")
def kafka3() -> tuple[dict[str, Definition], dict[str, Definition]]:
    return definitions(OLDEST_KAFKA)


@pytest.fixture(scope="module")
def kafka4() -> tuple[dict[str, Definition], dict[str, Definition]]:
    return definitions(NEWEST_KAFKA)


def as_kafka_words_it(bounds: Bounds | None) -> str:
    match bounds:
        case None:
            return ""
        case AtLeast(minimum):
            return f"[{minimum},...]"
        case Between(minimum, maximum, also):
            return f"[{minimum},...,{maximum}]" + "".join(f" or {value}" for value in also)
        case OneOf(allowed):
            return f"[{', '.join(allowed)}]"
        case Checked(form):
            return form


def compare(rows: dict[str, Setting], theirs: dict[str, Definition]) -> list[str]:
    differences = []
    for name, row in rows.items():
        their = theirs[name]
        if row.type.name != their.type:
            differences.append(f"{name}: type {row.type.name}, Kafka's {their.type}")
        default = render(row.default)
        default = "(null)" if default is None else default
        if (default == their.default) == (name in DIFFERENT_DEFAULTS):
            differences.append(f"{name}: default {default}, Kafka's {their.default}")
        allowed = as_kafka_words_it(row.bounds)
        if (allowed == their.allowed) == (name in DIFFERENT_BOUNDS):
            differences.append(f"{name}: allowed {allowed}, Kafka's {their.allowed}")
    return differences


def test_the_brokers_settings_are_those_of_3_9(
    kafka3: tuple[dict[str, Definition], dict[str, Definition]],
) -> None:
    assert compare({k: row for k, row in SETTINGS.items() if k not in KLOGS_OWN}, kafka3[0]) == []


def test_the_topics_settings_are_those_of_3_9(
    kafka3: tuple[dict[str, Definition], dict[str, Definition]],
) -> None:
    assert set(TOPIC_SETTINGS) == {name for name, row in kafka3[1].items() if not row.is_internal}
    assert compare(TOPIC_SETTINGS, kafka3[1]) == []
    for name, row in TOPIC_SETTINGS.items():
        assert (row.broker_name or "") == kafka3[1][name].broker_name, name


def test_every_name_of_both_releases_is_known_or_accepted(
    kafka3: tuple[dict[str, Definition], dict[str, Definition]],
    kafka4: tuple[dict[str, Definition], dict[str, Definition]],
) -> None:
    names3, names4 = set(kafka3[0]), set(kafka4[0])
    assert set(SETTINGS) - set(KLOGS_OWN) <= names3
    assert not set(KLOGS_OWN) & (names3 | names4)
    assert set(REASONS) | set(REFUSED) == (names3 | names4 | NOT_DEFINED) - set(SETTINGS)
    assert names4 - names3 == SINCE_4


def test_what_can_be_changed_while_the_broker_runs_is_kafkas() -> None:
    modes: dict[str, set[str]] = {}
    for line in run_java(NEWEST_KAFKA, "DynamicConfigs.java"):
        name, mode = line.split("\t")
        modes.setdefault(mode, set()).add(name)
    ours = {name for name, row in SETTINGS.items() if row.dynamic}
    assert (ours - DROPPED - set(KLOGS_OWN)) | CHANGEABLE_FOR_ALL == modes["cluster-wide"]
    for_one = modes["per-broker"] - modes["behind a listener"] - NOT_CHANGED
    assert for_one == CHANGEABLE_FOR_ONE
    assert modes["of all listeners"] == CHANGEABLE_LISTENER_SETTINGS


def test_the_secret_names_are_kafkas(
    kafka3: tuple[dict[str, Definition], dict[str, Definition]],
    kafka4: tuple[dict[str, Definition], dict[str, Definition]],
) -> None:
    theirs = {
        name
        for brokers, _ in (kafka3, kafka4)
        for name, row in brokers.items()
        if row.type == "PASSWORD"
    }
    assert theirs == SECRET_NAMES | {name for name, row in SETTINGS.items() if row.is_secret}


@pytest.mark.parametrize(
    "kind, rows, changes",
    [(0, SETTINGS, BROKER_CHANGES), (1, TOPIC_SETTINGS, TOPIC_CHANGES)],
    ids=["broker", "topic"],
)
def test_what_4_x_changed_is_listed(
    kind: int,
    rows: dict[str, Setting],
    changes: dict[str, str],
    kafka3: tuple[dict[str, Definition], dict[str, Definition]],
    kafka4: tuple[dict[str, Definition], dict[str, Definition]],
) -> None:
    known = set(rows) - set(KLOGS_OWN)
    changed = {name for name in known if kafka4[kind].get(name) != kafka3[kind][name]}
    assert changed == set(changes)
    for name, text in changes.items():
        assert text.startswith("Dropped") == (name not in kafka4[kind]), name
        if "default" in text or "minimum" in text:
            number = next(word for word in text.split() if word.strip(".").isdigit()).strip(".")
            new = kafka4[kind][name]
            assert number in (new.default, new.allowed.removeprefix("[").removesuffix(",...]"))


def test_properties_files_are_read_as_java_reads_them() -> None:
    pieces = [
        *("\\", "\n", "\r", "\r\n", " ", "\t", "\f", "=", ":", "#", "!", "a", "b", "u", "n", "é"),
        *(
            "\\u0041",
            "\\u00",
            "\\ud83d\\ude00",
            "\\\\",
            "\\\n",
            "\\\r\n",
            "\x85",
            "\u2028",
            "x=1\n",
        ),
    ]
    choose = random.Random(20)
    texts = ["".join(choose.choices(pieces, k=choose.randrange(25))) for _ in range(20_000)]
    stdin = "".join(f"{text.encode('utf-16-be').hex()}\n" for text in texts)
    theirs = run_java(OLDEST_KAFKA, "JavaProperties.java", stdin)
    assert len(theirs) == len(texts)
    read = [expected for expected in theirs if expected != "refused"]
    assert len(read) > 10_000
    for text, expected in zip(texts, theirs, strict=True):
        try:
            entries = parse_properties(text)
        except ConfigError:
            ours = "refused"
        else:
            values = (value for entry in entries for value in (entry.name, entry.text))
            ours = "".join(value.encode("utf-16-be").hex() + "," for value in values)
        # Two things differ on purpose: half a character (a surrogate) alone becomes U+FFFD, and a
        # backslash as a file's whole last line is no entry without a name.
        if "fffd" not in ours and expected != ours + ",,":
            assert ours == expected, repr(text)


GIVEN = {
    "log.retention.hours": "2",
    "log.segment.bytes": "1048576",
    "log.roll.ms": "3600000",
    "log.message.timestamp.difference.max.ms": "1000000",
    "message.max.bytes": "2000000",
    "compression.type": "lz4",
}
OVERRIDES = {
    "retention.bytes": "7",
    "cleanup.policy": "compact,delete",
    "flush.messages": "3",
    "preallocate": "true",
    "min.cleanable.dirty.ratio": "0.25",
}
# Broker settings that change nothing in klog: DescribeConfigs leaves these synonyms out.
NOT_TOLD = {name for name, row in TOPIC_SETTINGS.items() if row.broker_name not in SETTINGS}


def test_describe_configs_of_a_topic_answers_what_kafka_answers() -> None:
    broker = BrokerConfig.load(overrides=GIVEN)
    ours = {
        entry.setting.name: (
            entry.value,
            int(entry.source),
            [(each.name, each.value, int(each.source)) for each in entry.synonyms],
            int(entry.setting.type),
            entry.read_only,
        )
        for entry in topic_entries(topic_config(broker, OVERRIDES), broker)
    }
    with KafkaServer(OLDEST_KAFKA, properties=GIVEN) as server:
        client = BlockingClient({"bootstrap.servers": server.bootstrap_servers})
        with Admin(client=client) as admin:
            admin.create_topics([NewTopic("a", 1, 1, OVERRIDES)])
            resource = DescribeConfigsResource(
                resource_type=2, resource_name="a", configuration_keys=None
            )
            request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
            link = client.link_to_any(client.deadline())
            reply = client.call(link, DescribeConfigsResponse, lambda _: request)
        client.close()
    (result,) = reply.results
    theirs = {
        row.name: (
            row.value,
            row.config_source,
            [(each.name, each.value, each.source) for each in row.synonyms],
            row.config_type,
            row.read_only,
        )
        for row in result.configs
    }
    assert set(ours) == set(theirs)
    for name in theirs:
        if name in NOT_TOLD:
            assert ours[name][0] == theirs[name][0], name
        else:
            assert ours[name] == theirs[name], name


def test_listeners_have_kafkas_default_port() -> None:
    (listener,) = BrokerConfig.load().listeners
    assert listener == Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092)
