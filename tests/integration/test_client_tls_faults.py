"""Over TLS and SASL a read goes on after a lost connection and a leader that has moved."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from pyspark_klog import testing
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.consumer.fetcher import RangeFetcher
from pyspark_klog.client.consumer.lost_offsets import OffsetsLost
from pyspark_klog.client.errors import AuthenticationFailed, TlsFailed
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.fetch import FetchResponse
from pyspark_klog.protocol.apis.metadata import MetadataResponse, MetadataResponseBroker
from pyspark_klog.protocol.message import Response
from tests.support.client.cases import batch
from tests.support.records.record_sets import iterate
from tests.support.security.certs import Authority
from tests.support.security.kafka_listeners import MECHANISMS, PASSWORD, USER, jaas
from tests.support.security.server import PlayedBroker, server_context

RECORDS = 40
VALUE_BYTES = 50_000
OTHER_NODE = 77
NOT_LEADER = 6


class Cluster:
    """One klog broker behind two addresses, of which one leads every partition."""

    def __init__(self, stack: ExitStack, authority: Authority) -> None:
        self.authority = authority
        context = server_context(authority.broker().pem_file())
        self.fronts = [
            stack.enter_context(
                PlayedBroker(tls=context, mechanisms=MECHANISMS, users={USER: PASSWORD})
            )
            for _ in range(2)
        ]
        listeners = f"PLAINTEXT://{self.fronts[0].address}"
        broker = stack.enter_context(testing.Broker(advertised_listeners=listeners))
        host, _, port = broker.bootstrap_servers.partition(":")
        self.leader = 0
        for front in self.fronts:
            front.broker = (host, int(port))

    def rewrite(self) -> None:
        """Make all further responses name both addresses, and `leader` as the leader."""
        for index, front in enumerate(self.fronts):
            front.edit = lambda reply, index=index: self._edit(reply, index)

    def _edit(self, reply: Response, index: int) -> None:
        if isinstance(reply, MetadataResponse):
            other = self.fronts[1]
            reply.brokers.append(
                MetadataResponseBroker(node_id=OTHER_NODE, host="localhost", port=other.port)
            )
            for partition in (p for topic in reply.topics for p in topic.partitions):
                partition.leader_id = OTHER_NODE if self.leader == 1 else partition.leader_id
        elif isinstance(reply, FetchResponse) and index != self.leader:
            for row in (row for topic in reply.responses for row in topic.partitions):
                row.error_code, row.records = NOT_LEADER, None

    def settings(self) -> dict[str, str]:
        return {
            "bootstrap.servers": self.fronts[0].address,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": jaas("SCRAM-SHA-512"),
            "ssl.truststore.location": str(self.authority.pem_file()),
            # A reply has two records, so that a read takes many.
            "max.partition.fetch.bytes": str(2 * VALUE_BYTES),
        }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(stack, Authority(tmp_path_factory.mktemp("faults")))


def _fill(client: BlockingClient) -> TopicPartition:
    partition = TopicPartition(f"filled-{uuid.uuid4().hex[:6]}", 0)
    topic = NewTopic(partition.topic, 1, 1, {"retention.ms": "-1"})
    Admin(client=client).create_topics([topic])
    producer = Producer(client)
    for number in range(RECORDS):
        data, count = batch([b"%d" % number], size=VALUE_BYTES // 2)
        producer.add(partition, data, count)
    producer.flush()
    return partition


def _chunks(client: BlockingClient, partition: TopicPartition) -> Iterator[list[bytes | None]]:
    def fail(lost: OffsetsLost) -> None:
        raise lost

    for chunk in RangeFetcher(
        client, partition, 0, RECORDS, progress_timeout_ms=60_000, on_lost=fail
    ):
        yield [record.key for record in iterate(chunk.data, allow_partial=True)]


EXPECTED = [b"%d" % number for number in range(RECORDS)]


@pytest.mark.parametrize("cut_after_bytes", [None, 0, 3, 20_000, 100_000])
def test_a_connection_that_is_lost_while_records_come(
    cluster: Cluster, cut_after_bytes: int | None
) -> None:
    """The connection ends between responses or within one, even before or within its size."""
    front = cluster.fronts[0]
    with BlockingClient(cluster.settings()) as client:
        partition = _fill(client)
        found: list[bytes | None] = []
        for number, keys in enumerate(_chunks(client, partition)):
            found += keys
            if number in (1, 5):
                connections = front.connections
                front.cut_after_bytes = cut_after_bytes
                if cut_after_bytes is None:
                    front.cut()
        assert front.connections > connections
    assert found == EXPECTED
    assert {who for _, who in front.authentications} == {USER}


def test_a_leader_that_moves_while_records_come(cluster: Cluster) -> None:
    second = cluster.fronts[1]
    cluster.rewrite()
    with BlockingClient(cluster.settings()) as client:
        partition = _fill(client)
        found: list[bytes | None] = []
        for number, keys in enumerate(_chunks(client, partition)):
            found += keys
            if number in (1, 6):
                cluster.leader = 1 - cluster.leader
    assert found == EXPECTED
    # The second address was authenticated to as the first was, and once.
    assert (second.connections, second.authentications) == (1, [("SCRAM-SHA-512", USER)])
    for front in cluster.fronts:
        front.edit = None


def test_what_goes_wrong_for_good_while_records_come_ends_the_read(cluster: Cluster) -> None:
    """After the connection is lost, the password is changed, and then the certificate."""
    front = cluster.fronts[0]
    with BlockingClient(cluster.settings()) as client:
        partition = _fill(client)
        chunks = _chunks(client, partition)
        next(chunks)
        front.users[USER] = "another"
        front.cut()
        with pytest.raises(AuthenticationFailed) as refused:
            list(chunks)
        assert str(refused.value).startswith(
            f"{front.address} refused SASL SCRAM-SHA-512 for user 'alice': Authentication failed"
        )
        front.users[USER] = PASSWORD
        chunks = _chunks(client, partition)
        next(chunks)
        old = cluster.authority.issue("old", ("localhost",), expired=True).pem_file()
        front.tls = server_context(old)
        front.cut()
        with pytest.raises(TlsFailed) as expired:
            list(chunks)
        assert str(expired.value) == (
            f"a certificate that {front.address} shows has expired: renew it, or check this "
            "machine's clock"
        )
