"""The controller's log lines about brokers and elected leaders."""

import logging

import pytest

from klog_broker.controller.zookeeper.controller import RETRY_MS
from klog_broker.metadata.image import NO_BROKER
from pyspark_klog.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from tests.support.cluster.controller import PARTITION, THREE, TOPIC_ID, TWO, Controlled


@pytest.fixture
def cluster() -> Controlled:
    return Controlled.of_three()


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "klog.controller")
    return caplog


def lines(log: pytest.LogCaptureFixture, part: str) -> list[str]:
    """Return the lines with this text since the last call, each with its level."""
    found = [f"{each.levelname} {each.getMessage()}" for each in log.records]
    log.clear()
    return [each for each in found if part in each]


def test_the_controller_logs_each_broker_that_registers_or_disappears(
    cluster: Controlled, log: pytest.LogCaptureFixture
) -> None:
    assert lines(log, "has registered") == []  # the first reading logs the number of brokers
    cluster.register(4)
    assert lines(log, "broker_id=4") == [
        f"INFO broker_id=4 has registered broker_epoch={cluster.epoch(4)} brokers=4"
    ]
    third = cluster.epoch(3)
    cluster.unregister_broker(3)
    assert lines(log, "broker_id=3") == [
        f"WARNING broker_id=3 has disappeared without a controlled shutdown broker_epoch={third}"
        " brokers=3"
    ]
    second = cluster.epoch(2)
    request = ControlledShutdownRequest(broker_id=2, broker_epoch=second)
    cluster.call(cluster.controller.shut_down, request)
    cluster.unregister_broker(2)
    assert lines(log, "broker_id=2") == [
        f"INFO broker_id=2 has disappeared after a controlled shutdown broker_epoch={second}"
        " brokers=2"
    ]


def test_a_broker_that_disappears_during_a_lost_connection_is_logged(
    cluster: Controlled, log: pytest.LogCaptureFixture
) -> None:
    cluster.client.reset()
    cluster.unregister_broker(3)
    cluster.advance(5 * RETRY_MS)
    assert len(lines(log, "broker_id=3 has disappeared")) == 1


def test_the_controller_logs_the_number_of_elected_leaders_and_the_reason(
    cluster: Controlled, log: pytest.LogCaptureFixture
) -> None:
    cluster.create(2, 3)
    cluster.create(2, 3, name="u")
    assert lines(log, "leaders elected") == 2 * [
        "INFO leaders elected count=1 reason=new-partition"
    ]
    cluster.unregister_broker(2)
    assert lines(log, "leaders elected") == ["INFO leaders elected count=2 reason=broker-failed"]
    cluster.register(2)
    state = cluster.state()
    assert state is not None and state.leader == THREE
    assert lines(log, "leaders elected") == []
    cluster.unregister_broker(3)
    state = cluster.state()
    assert state is not None and state.leader == NO_BROKER
    assert lines(log, "leaders elected") == []


def test_a_controlled_shutdown_is_the_reason_of_its_elections(
    cluster: Controlled, log: pytest.LogCaptureFixture
) -> None:
    cluster.create(2, 3)
    lines(log, "")
    request = ControlledShutdownRequest(broker_id=2, broker_epoch=cluster.epoch(2))
    cluster.call(cluster.controller.shut_down, request)
    assert lines(log, "leaders elected") == [
        "INFO leaders elected count=1 reason=controlled-shutdown"
    ]


def test_an_unclean_election_is_logged_at_warning(
    cluster: Controlled, log: pytest.LogCaptureFixture
) -> None:
    cluster.create(2, 3)
    cluster.unregister_broker(2)
    cluster.register(2)  # broker 2 is not in sync now
    cluster.unregister_broker(3)
    lines(log, "")
    cluster.call(cluster.controller.elect_leaders, [PARTITION], unclean=True)
    state = cluster.state()
    assert state is not None and state.leader == TWO
    assert lines(log, "leaders elected") == [
        "WARNING leaders elected from replicas that were not in sync, records may be lost:"
        " unclean=1 reason=replica-available-again"
    ]


def test_a_deletion_that_waits_for_a_broker_is_logged(
    cluster: Controlled, log: pytest.LogCaptureFixture
) -> None:
    cluster.create(2, 3)
    cluster.unregister_broker(3)
    cluster.call(cluster.controller.delete_topic, "t", TOPIC_ID)
    assert lines(log, "topic=t") == [
        "WARNING topic=t the deletion waits until its brokers are registered: brokers=3"
    ]
    cluster.register(3)
    assert lines(log, "topic=t") == ["INFO topic=t is deleted"]
