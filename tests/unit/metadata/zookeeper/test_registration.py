"""/brokers/ids/N: kept across sessions; waits for its own last session; leaves others alone."""

from typing import Any

import pytest

from klog_broker.metadata.zookeeper.registration import Registration, longest_wait_ms
from klog_broker.metadata.zookeeper.sessions import Sessions
from klog_broker.runtime.zookeeper.sessions import ANY_VERSION, Create, Delete
from pyspark_klog.ids import BrokerId
from pyspark_klog.znodes.brokers import BrokerRegistration, Endpoint, decode_broker, encode_broker
from pyspark_klog.znodes.paths import broker_path
from tests.support.cluster.zookeeper import SESSION_MS, ClusterWorld, NotedUser

PATH = broker_path(BrokerId(7))
WAIT_MS = longest_wait_ms(SESSION_MS)
SAYS = BrokerRegistration((Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),), 5, "r1")
OTHERS = BrokerRegistration((Endpoint("PLAINTEXT", "10.0.0.9", 9, "PLAINTEXT"),), 5)


class Registered:
    """A broker with number 7."""

    def __init__(self, cluster: ClusterWorld) -> None:
        self.then = NotedUser()
        self.refusals: list[str] = []
        self.registration = Registration(
            cluster.loop,
            BrokerId(7),
            then=self.then,
            on_in_use=self.refusals.append,
        )
        self.sessions: Sessions
        self.client: Any
        self.sessions, self.client = cluster.sessions(self.registration)
        self.registration.register(lambda: SAYS)

    @property
    def epoch(self) -> int:
        return self.registration.broker_epoch


@pytest.fixture
def cluster() -> ClusterWorld:
    made = ClusterWorld()
    made.call_zookeeper("create", "/brokers/ids", b"", makes_parents=True)
    return made


def test_the_epoch_is_the_nodes_transaction(cluster: ClusterWorld) -> None:
    broker = Registered(cluster)
    assert broker.epoch == -1
    cluster.until(lambda: broker.epoch >= 0)
    assert broker.epoch == cluster.stat(PATH).czxid
    assert cluster.stat(PATH).ephemeral_owner == broker.then.session.session_id
    assert decode_broker(BrokerId(7), cluster.data(PATH)) == SAYS
    assert broker.then.told == ["connected"]


def test_each_registration_raises_the_version_that_controllers_check(cluster: ClusterWorld) -> None:
    broker = Registered(cluster)
    cluster.until(lambda: broker.epoch >= 0)
    assert (cluster.stat("/brokers/ids").version, cluster.data("/brokers/ids")) == (1, b"")
    assert cluster.stat("/brokers/ids").mzxid == broker.epoch
    broker.client.reset()
    cluster.until(lambda: broker.then.told == ["connected"] * 2)
    assert cluster.stat("/brokers/ids").version == 1


def test_after_a_break_the_node_is_still_its_own(cluster: ClusterWorld) -> None:
    broker = Registered(cluster)
    first = cluster.until(lambda: broker.epoch >= 0 and broker.epoch)
    broker.client.reset()
    cluster.until(lambda: len(broker.then.told) == 2)
    assert broker.then.told == ["connected", "connected"]
    assert broker.epoch == first


def test_a_node_that_was_deleted_comes_again_at_the_next_connection(cluster: ClusterWorld) -> None:
    broker = Registered(cluster)
    first = cluster.until(lambda: broker.epoch >= 0 and broker.epoch)
    cluster.call_zookeeper("delete", PATH, ANY_VERSION)
    broker.client.reset()
    cluster.until(lambda: broker.epoch > first)
    assert cluster.stat(PATH).czxid == broker.epoch


def test_a_new_session_has_a_new_broker_epoch(
    cluster: ClusterWorld,
) -> None:
    broker = Registered(cluster)
    first = cluster.until(lambda: broker.epoch >= 0 and broker.epoch)
    cluster.zookeeper.expire(broker.then.session.session_id)
    cluster.until(lambda: broker.epoch > first)
    assert broker.then.told == ["connected", "expired", "connected"]
    assert cluster.stat(PATH).czxid == broker.epoch


@pytest.mark.parametrize("seed", range(8))
def test_an_answer_that_was_lost_was_yes(seed: int) -> None:
    cluster = ClusterWorld(seed)
    cluster.call_zookeeper("create", "/brokers/ids", b"", makes_parents=True)
    broker = Registered(cluster)
    cluster.until(lambda: cluster.stat(PATH) is not None)
    broker.client.reset()
    cluster.until(lambda: broker.epoch >= 0)
    assert broker.epoch == cluster.stat(PATH).czxid
    assert not broker.refusals


def test_the_end_of_the_last_session_is_waited_for(
    cluster: ClusterWorld, caplog: pytest.LogCaptureFixture
) -> None:
    last = Registered(cluster)
    cluster.until(lambda: last.epoch >= 0)
    last.client.die()
    broker = Registered(cluster)
    cluster.until(lambda: broker.epoch >= 0)
    assert not broker.refusals
    assert broker.epoch > last.epoch
    assert "broker_id=7 is registered by session 0x" in caplog.text


def test_the_wait_is_as_long_as_zookeepers_time_out_not_as_the_configured_one(
    cluster: ClusterWorld,
) -> None:
    """A ZooKeeper server with a tick of 20 s lengthens shorter time-outs to 40 s."""
    cluster.zookeeper.min_session_timeout_ms = 40_000
    last = Registered(cluster)
    cluster.until(lambda: last.epoch >= 0)
    last.client.die()
    broker = Registered(cluster)
    cluster.until(lambda: broker.epoch >= 0)
    assert not broker.refusals


def test_another_brokers_number_is_refused_in_a_sentence(cluster: ClusterWorld) -> None:
    cluster.call_zookeeper("create", PATH, encode_broker(OTHERS), ephemeral=True)
    broker = Registered(cluster)
    cluster.advance(WAIT_MS - 500)
    assert not broker.refusals
    cluster.until(lambda: broker.refusals, within_ms=2_000)
    (text,) = broker.refusals
    owner = cluster.stat(PATH).ephemeral_owner
    assert text == (
        f"broker.id=7 is in use: /brokers/ids/7 belongs to another broker (session 0x{owner:x},"
        f" PLAINTEXT://10.0.0.9:9), and it did not end within {WAIT_MS} ms; give this broker"
        " another number and an empty data directory, or stop that one"
    )
    cluster.call_zookeeper("delete", PATH, ANY_VERSION)
    broker.client.reset()
    cluster.advance(2_000)
    assert broker.epoch == -1, "whoever was refused has ended"
    assert len(broker.refusals) == 1


def test_the_next_owner_of_the_broker_id_is_waited_for_as_long(cluster: ClusterWorld) -> None:
    cluster.call_zookeeper("create", PATH, encode_broker(OTHERS), ephemeral=True)
    broker = Registered(cluster)
    cluster.advance(WAIT_MS - 500)
    other = cluster.zookeeper.client("other").opener(SESSION_MS)(cluster.loop, lambda _: None)
    took: list[Any] = []
    other.multi([Delete(PATH), Create(PATH, encode_broker(OTHERS), ephemeral=True)], took.append)
    cluster.advance(WAIT_MS - 500)
    assert len(took[0]) == 2
    assert not broker.refusals
    cluster.until(lambda: broker.refusals, within_ms=WAIT_MS)
    assert f"0x{other.session_id:x}" in broker.refusals[0]


def test_time_without_zookeeper_does_not_count(cluster: ClusterWorld) -> None:
    cluster.call_zookeeper("create", PATH, b"nonsense", ephemeral=True)
    broker = Registered(cluster)
    cluster.advance(1_000)
    cluster.zookeeper.stop()
    cluster.advance(2 * WAIT_MS)
    cluster.zookeeper.start()
    cluster.advance(WAIT_MS // 2)
    assert not broker.refusals
    cluster.until(lambda: broker.refusals, within_ms=WAIT_MS)
    assert "whose data cannot be read" in broker.refusals[0]
