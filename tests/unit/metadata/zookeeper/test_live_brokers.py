"""/brokers/ids as a broker reads it: live brokers, unreadable ones, changes during a read."""

import sys
from collections.abc import Mapping
from typing import Any

import pytest

from klog_broker.config import Listener
from klog_broker.metadata.image import BrokerRegistration
from klog_broker.metadata.zookeeper.registration_reader import BrokerRegistrationReader
from klog_broker.runtime.zookeeper.sessions import ANY_VERSION, NoAuth, Session
from pyspark_klog.ids import BrokerId
from pyspark_klog.znodes.brokers import BrokerRegistration as Znode
from pyspark_klog.znodes.brokers import Endpoint, encode_broker
from pyspark_klog.znodes.paths import BROKER_IDS, broker_path
from tests.support.cluster.zookeeper import ClusterWorld


class Reader:
    """Records the results of each read."""

    def __init__(self, cluster: ClusterWorld) -> None:
        self.read: list[Mapping[BrokerId, BrokerRegistration]] = []
        _, self.client = cluster.sessions(BrokerRegistrationReader(cluster.loop, self.read.append))

    def sees(self, *numbers: int) -> bool:
        return bool(self.read) and sorted(self.read[-1]) == list(numbers)


def znode(number: int, rack: str | None = None) -> bytes:
    endpoint = Endpoint("PLAINTEXT", f"host{number}", 9092, "PLAINTEXT")
    return encode_broker(Znode((endpoint,), 5, rack))


@pytest.fixture
def cluster() -> ClusterWorld:
    made = ClusterWorld()
    made.call_zookeeper("create", BROKER_IDS, b"", makes_parents=True)
    return made


def test_brokers_come_and_go(cluster: ClusterWorld) -> None:
    reader = Reader(cluster)
    cluster.until(lambda: reader.sees())
    for number in (3, 1, 2):
        cluster.call_zookeeper("create", broker_path(BrokerId(number)), znode(number))
    cluster.until(lambda: reader.sees(1, 2, 3))
    listener = Listener("PLAINTEXT", "PLAINTEXT", "host2", 9092)
    assert reader.read[-1][BrokerId(2)] == BrokerRegistration(BrokerId(2), (listener,), None)
    cluster.call_zookeeper("delete", broker_path(BrokerId(1)), ANY_VERSION)
    cluster.until(lambda: reader.sees(2, 3))
    reader.client.reset()
    cluster.call_zookeeper("delete", broker_path(BrokerId(2)), ANY_VERSION)
    cluster.until(lambda: reader.sees(3))


def test_a_change_of_one_is_read(cluster: ClusterWorld) -> None:
    cluster.call_zookeeper("create", broker_path(BrokerId(1)), znode(1))
    reader = Reader(cluster)
    cluster.until(lambda: reader.sees(1))
    for rack in ("a", "b", "c"):
        cluster.call_zookeeper("set", broker_path(BrokerId(1)), znode(1, rack), ANY_VERSION)
        cluster.until(lambda rack=rack: reader.read[-1][BrokerId(1)].rack == rack)


def test_what_cannot_be_read_is_named_once_and_left(
    cluster: ClusterWorld, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.call_zookeeper("create", broker_path(BrokerId(1)), znode(1))
    cluster.call_zookeeper("create", f"{BROKER_IDS}/2", b"{")
    cluster.call_zookeeper("create", f"{BROKER_IDS}/somebody", b"")
    cluster.call_zookeeper("create", f"{BROKER_IDS}/99999999999", b"")
    cluster.call_zookeeper("create", f"{BROKER_IDS}/{'9' * 5_000}", b"")
    reader = Reader(cluster)
    cluster.until(lambda: reader.sees(1))
    cluster.call_zookeeper("create", broker_path(BrokerId(3)), znode(3))
    cluster.until(lambda: reader.sees(1, 3))
    named = [each for each in caplog.messages if "is ignored, and stays unchanged" in each]
    assert [each.split()[0] for each in named] == [
        "znode=/brokers/ids/2",
        "znode=/brokers/ids/99999999999",
        f"znode=/brokers/ids/{'9' * 5_000}",
        "znode=/brokers/ids/somebody",
    ]
    assert cluster.data(f"{BROKER_IDS}/2") == b"{"
    cluster.call_zookeeper("set", f"{BROKER_IDS}/2", znode(2), ANY_VERSION)
    cluster.until(lambda: reader.sees(1, 2, 3))


class Denied:
    """A SessionUser that may not read a znode of its sessions."""

    def __init__(self, user: BrokerRegistrationReader, path: str) -> None:
        self._user = user
        self._path = path

    def connected(self, session: Session) -> None:
        original: Any = session.get

        def get(path: str, done: Any, **options: Any) -> None:
            denied = path == self._path
            original(path, lambda answer: done(NoAuth(path) if denied else answer), **options)

        session.get = get  # type: ignore[method-assign]
        self._user.connected(session)

    def expired(self) -> None:
        self._user.expired()


def test_one_that_may_not_be_read_hides_no_other(
    cluster: ClusterWorld, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 2):
        cluster.call_zookeeper("create", broker_path(BrokerId(number)), znode(number))
    read: list[Mapping[BrokerId, BrokerRegistration]] = []
    cluster.sessions(
        Denied(BrokerRegistrationReader(cluster.loop, read.append), broker_path(BrokerId(2)))
    )
    cluster.until(lambda: read)
    cluster.call_zookeeper("create", broker_path(BrokerId(3)), znode(3))
    cluster.until(lambda: sorted(read[-1]) == [1, 3])
    named = [each for each in caplog.messages if "is ignored, and stays unchanged" in each]
    assert [each.split()[0] for each in named] == ["znode=/brokers/ids/2"]


def test_of_what_cannot_be_read_nothing_is_kept(cluster: ClusterWorld) -> None:
    data = bytes(100_000)
    cluster.call_zookeeper("create", f"{BROKER_IDS}/2", data)
    assert cluster.data(f"{BROKER_IDS}/2") is data
    before = sys.getrefcount(data)
    reader = Reader(cluster)
    cluster.until(lambda: reader.sees())
    assert sys.getrefcount(data) == before


def test_without_the_parent_it_is_tried_again(
    cluster: ClusterWorld, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.call_zookeeper("delete", BROKER_IDS, ANY_VERSION)
    reader = Reader(cluster)
    cluster.advance(500)
    assert not reader.read
    assert "cannot read the brokers' registrations, this broker tries again" in caplog.text
    cluster.call_zookeeper("create", BROKER_IDS, b"")
    cluster.until(lambda: reader.sees())


@pytest.mark.parametrize("seed", range(10))
def test_in_the_end_all_registered_brokers_are_seen(seed: int) -> None:
    """The last read is right whatever happens during earlier reads."""
    cluster = ClusterWorld(seed)
    cluster.call_zookeeper("create", BROKER_IDS, b"", makes_parents=True)
    reader = Reader(cluster)
    there: set[int] = set()
    for _ in range(40):
        number = cluster.world.between(1, 6)
        if number in there:
            cluster.call_zookeeper("delete", broker_path(BrokerId(number)), ANY_VERSION)
        else:
            cluster.call_zookeeper("create", broker_path(BrokerId(number)), znode(number))
        there ^= {number}
        if cluster.world.chance(0.2):
            reader.client.reset()
    cluster.until(lambda: reader.sees(*sorted(there)))
