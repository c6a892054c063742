"""/ready: when clients should use a broker, and which partitions a failure affects."""

import json
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from klog_broker.coordinator.shard import ShardStatus
from klog_broker.log.directory.free_space import MEASURE_INTERVAL_MS
from klog_broker.metrics.zookeeper import ZooKeeperCounts
from klog_broker.monitoring.health import MOST_NAMES, State, health, health_state
from klog_broker.replication.partition import Offline
from pyspark_klog.ids import BrokerId
from tests.support.cluster.broker import ME, MemoryBroker, new_broker
from tests.support.monitoring.scraping import METRICS_LISTENER, get

T = TypeVar("T")
FLOOR = 1_000_000


@pytest.fixture
def broker() -> MemoryBroker:
    return new_broker(
        with_kernel=False,
        topics=("plain", "compacted"),
        metrics_listener=METRICS_LISTENER,
        log_dir_min_free_bytes=FLOOR,
    )


def probe(broker: MemoryBroker) -> tuple[int, Any]:
    status, text = get(broker, "/ready")
    return status, json.loads(text)


def test_a_broker_without_failures_is_ready(broker: MemoryBroker) -> None:
    assert probe(broker) == (
        200,
        {
            "state": "ready",
            "zookeeper_connected": None,
            "offline_directories": [],
            "full_directories": [],
            "affected_partitions": {},
        },
    )


def test_a_broker_with_an_offline_partition_is_ready_and_names_the_partition(
    broker: MemoryBroker,
) -> None:
    hosted = broker.broker.services.replicas.partition("plain", 1)
    assert hosted is not None
    hosted.role = Offline()
    status, body = probe(broker)
    assert (status, body["state"]) == (200, "ready")
    assert body["affected_partitions"] == {"offline": {"count": 1, "partitions": ["plain-1"]}}


def test_a_broker_whose_partition_refuses_acks_all_names_the_partition(
    broker: MemoryBroker,
) -> None:
    broker.assign("plain", replicas=(ME, BrokerId(1)), in_sync=(ME,))
    leader = broker.broker.services.replicas.led["plain", 0]
    leader.set_min_in_sync(2)
    status, body = probe(broker)
    assert status == 200
    assert body["affected_partitions"] == {"under_min_isr": {"count": 1, "partitions": ["plain-0"]}}


def test_a_broker_on_a_nearly_full_disk_is_not_ready(broker: MemoryBroker) -> None:
    broker.files.free_bytes = FLOOR - 1
    broker.pass_time(MEASURE_INTERVAL_MS + 100)
    status, body = probe(broker)
    assert (status, body["state"]) == (503, "no-usable-directory")
    assert body["full_directories"] == ["/data"]
    assert body["affected_partitions"]["disk_full"]["count"] == 4
    broker.files.free_bytes = 2 * FLOOR
    broker.pass_time(MEASURE_INTERVAL_MS + 100)
    assert probe(broker)[0] == 200


def test_a_stopping_broker_is_not_ready(broker: MemoryBroker) -> None:
    broker.connect().inbox += b"\x00\x00"  # keeps the broker from stopping at once
    broker.broker.stop()
    broker.broker.loop.run_turn(0)
    status, body = probe(broker)
    assert (status, body["state"]) == (503, "stopping")


def stub_sources(**fields: Any) -> Any:
    """Return the sources of a ready broker without partitions, except for these fields."""

    def directory(*, is_offline: bool = False, is_full: bool = False) -> Any:
        space = SimpleNamespace(refuses_clients=is_full)
        return SimpleNamespace(path="/data", is_offline=is_offline, space=space)

    directories = [directory(**each) for each in fields.get("directories", ({},))]
    coordinator = SimpleNamespace(partitions_in=lambda status: fields.get(status.value, []))
    return SimpleNamespace(
        is_stopping=lambda: fields.get("is_stopping", False),
        is_starting=lambda: fields.get("is_starting", False),
        cluster=SimpleNamespace(zookeeper_counts=lambda: fields.get("session")),
        services=SimpleNamespace(
            logs=SimpleNamespace(directories=directories),
            replicas=SimpleNamespace(partitions=lambda: fields.get("partitions", ())),
            groups=coordinator,
            transactions=SimpleNamespace(partitions_in=lambda _: []),
        ),
    )


def result_of(steps: Generator[int, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            found: T = ended.value
            return found


OFFLINE, FULL = {"is_offline": True}, {"is_full": True}


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, State.READY),
        ({"is_starting": True}, State.STARTING),
        ({"is_starting": True, "is_stopping": True}, State.STOPPING),
        ({"session": ZooKeeperCounts()}, State.NO_SESSION),
        ({"directories": [OFFLINE, {}]}, State.READY),
        ({"directories": [FULL, {}]}, State.READY),
        ({"directories": [OFFLINE, FULL]}, State.NO_DIRECTORY),
        ({"directories": [OFFLINE, OFFLINE]}, State.NO_DIRECTORY),
        ({"directories": [FULL]}, State.NO_DIRECTORY),
    ],
)
def test_which_failures_affect_the_whole_broker(fields: dict[str, Any], state: State) -> None:
    assert health_state(stub_sources(**fields)) is state


def test_a_broker_with_a_zookeeper_session_is_ready() -> None:
    session = ZooKeeperCounts()
    session.is_connected = True
    assert health_state(stub_sources(session=session)) is State.READY


def test_coordinator_partitions_that_load_or_failed_are_named() -> None:
    sources = stub_sources(**{ShardStatus.LOADING.value: [3, 4], ShardStatus.FAILED.value: [7]})
    found = result_of(health(sources))
    assert found.is_ready
    assert json.loads(found.body)["affected_partitions"] == {
        "coordinator_failed": {"count": 1, "partitions": ["__consumer_offsets-7"]},
        "coordinator_loading": {
            "count": 2,
            "partitions": ["__consumer_offsets-3", "__consumer_offsets-4"],
        },
    }


def test_a_hundred_partitions_are_named_and_all_are_counted() -> None:
    offline = [
        SimpleNamespace(role=Offline(), topic_partition=f"t-{number}")
        for number in range(MOST_NAMES + 200)
    ]
    steps = health(stub_sources(partitions=offline))
    assert len(list(steps)) == 3
    found = json.loads(result_of(health(stub_sources(partitions=offline))).body)
    affected = found["affected_partitions"]["offline"]
    assert affected["count"] == MOST_NAMES + 200
    assert affected["partitions"] == [f"t-{number}" for number in range(MOST_NAMES)]
