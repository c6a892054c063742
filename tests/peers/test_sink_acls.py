"""The exactly-once sink as a user of Apache Kafka 3.9 and 4.3 with few rights: the rights that
docs/exactly-once.md lists are enough, and each refusal names the missing right."""

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pytest
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
)

from pyspark_klog.client.admin.groups import list_group_ids
from pyspark_klog.client.transactions.producer import TransactionalProducer
from pyspark_klog.errors import KlogError
from pyspark_klog.spark.options.exactly_once import MicroBatch
from pyspark_klog.spark.sink.exactly_once.commit import commit_batch, end_batch_write
from pyspark_klog.spark.sink.exactly_once.errors import ExactlyOnceRefused
from tests.support.client.cases import client_of
from tests.support.client.transaction_cases import new_id
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer
from tests.support.security.kafka_listeners import USER, jaas, sasl_properties
from tests.support.spark.sink_workers import RUN_1, RUN_2, Worker, own_caches
from tests.support.spark.sink_world import World

LISTENER = "PASSWORDS"
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


class Right(NamedTuple):
    """An operation on the sink's topic, or on what begins with its prefix."""

    on: ResourceType
    operation: ACLOperation


TOPIC, IDS, GROUPS = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID, ResourceType.GROUP
READ, WRITE, DESCRIBE = ACLOperation.READ, ACLOperation.WRITE, ACLOperation.DESCRIBE
STREAM = frozenset(
    {
        *(Right(TOPIC, each) for each in (WRITE, DESCRIBE, READ)),
        *(Right(IDS, each) for each in (WRITE, DESCRIBE)),
        *(Right(GROUPS, each) for each in (READ, DESCRIBE)),
    }
)
BATCH = STREAM | {Right(GROUPS, ACLOperation.DELETE)}


class Secured(World):
    """A sink whose user has few rights; the world itself is a super user."""

    def __init__(self, kafka: KafkaServer, rights: Iterable[Right]) -> None:
        super().__init__(kafka.bootstrap_servers)
        self._address = kafka.address_of(LISTENER)
        admin = KafkaAdminClient(bootstrap_servers=self.servers)
        try:
            admin.create_acls([self._acl(right) for right in rights])
        finally:
            admin.close()

    def _acl(self, right: Right) -> ACL:
        name, pattern = f"{self.prefix}.", ACLResourcePatternType.PREFIXED
        if right.on is TOPIC:
            name, pattern = self.topic, ACLResourcePatternType.LITERAL
        on = ResourcePattern(right.on, name, pattern)
        return ACL(f"User:{USER}", "*", right.operation, ACLPermissionType.ALLOW, on)

    def user(self, **options: str | int) -> Worker:
        """A worker of the user's."""
        given: dict[str, str | int] = {
            "topic": self.topic,
            "exactlyOncePrefix": self.prefix,
            "kafka_security_protocol": "SASL_PLAINTEXT",
            "kafka_sasl_mechanism": "PLAIN",
            "kafka_sasl_jaas_config": jaas("PLAIN"),
        }
        return Worker(self._address, **{**given, **options})

    def batch(self, batch_id: int, *values: str, run_id: str = RUN_1) -> None:
        """A micro-batch of one task, in a worker and a driver of the user's."""
        worker = self.user()
        written = worker.write(batch_id, *values, run_id=run_id).progress
        assert worker.options.exactly_once is not None
        commit_batch(worker.options.client, worker.options.exactly_once, batch_id, [written])


@pytest.fixture(scope="module", params=[OLDEST_KAFKA, NEWEST_KAFKA])
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
    listeners = {LISTENER: "SASL_PLAINTEXT"}
    properties = PROPERTIES | sasl_properties(LISTENER, ("PLAIN",))
    with KafkaServer(request.param, properties=properties, listeners=listeners) as server:
        yield server


@pytest.fixture(autouse=True)
def _own_caches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield from own_caches(monkeypatch)


def test_the_rights_of_the_page_are_enough_for_a_stream(
    kafka: KafkaServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Over two runs, the second of which repeats a batch and ends what the first one left open."""
    world = Secured(kafka, STREAM)
    with caplog.at_level(logging.WARNING):
        world.batch(0, "a")
        world.batch(1, "b")
        world.batch(1, "b", run_id=RUN_2)
        assert world.user().write(2, "lost", run_id=RUN_2).progress.opened is not None
        world.batch(2, "c", run_id=RUN_2)
    assert world.committed == ["a", "b", "c"]
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_a_batch_write_removes_its_groups(kafka: KafkaServer) -> None:
    world = Secured(kafka, BATCH)
    uuid, worker = new_id(), world.user()
    written = worker.write_batch(uuid, "a").progress
    assert worker.options.exactly_once is not None
    micro_batch = MicroBatch.of_batch_write(uuid)
    own = worker.options.exactly_once._replace(micro_batch=micro_batch)
    end_batch_write(worker.options.client, own, [written])
    with client_of(world.servers) as client:
        left = [each for each in list_group_ids(client) if uuid in each]
    assert [each for each in left if not each.endswith(".run")] == []
    assert world.committed == ["a"]


@pytest.mark.parametrize(
    ("absent", "text"),
    [
        (Right(IDS, WRITE), "this user needs WRITE on transactional ids that begin with {}"),
        (Right(GROUPS, READ), "this user needs READ on groups that begin with {}"),
        (Right(TOPIC, WRITE), "this user needs WRITE on the topics"),
        (Right(TOPIC, READ), "this user needs WRITE on the topics, and READ on"),
    ],
    ids=["ids", "groups", "topic", "topic of the progress rows"],
)
def test_the_refusal_says_which_right_is_absent(
    kafka: KafkaServer, absent: Right, text: str
) -> None:
    world = Secured(kafka, STREAM - {absent})
    with pytest.raises(ExactlyOnceRefused) as caught:
        world.user().write(0, "a")
    assert text.format(f"{world.prefix}.") in str(caught.value)
    assert world.committed == []


@pytest.mark.parametrize("on", [IDS, GROUPS, TOPIC])
def test_a_denied_describe_names_the_resource(kafka: KafkaServer, on: ResourceType) -> None:
    world = Secured(kafka, {right for right in STREAM if right.on is not on})
    with pytest.raises(KlogError) as caught:
        world.user().write(0, "a")
    named = {IDS: "needs WRITE on transactional ids", GROUPS: world.group(), TOPIC: world.topic}
    assert named[on] in str(caught.value)
    assert world.committed == []


def test_a_sink_that_may_not_write_under_its_ids_fences_no_other(kafka: KafkaServer) -> None:
    world = Secured(kafka, STREAM - {Right(IDS, WRITE)})
    with client_of(world.servers) as client:
        producer = TransactionalProducer(client, world.group())
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(ExactlyOnceRefused):
            world.user().write(0, "a")
        producer.abort_transaction()
