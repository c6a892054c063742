"""Log lines about an operation that is retried again and again."""

import logging

import pytest

from pyspark_klog.client.cluster.retry_warnings import OperationFailures, Retries
from pyspark_klog.client.errors import ConnectionFailed, NoBrokerAvailable, RequestTimedOut
from pyspark_klog.errors import BrokerError, ErrorCode

_AWAY = NoBrokerAvailable("no broker could be reached: h:1: Connection refused")
_LOST = ConnectionFailed("connection to h:1 was lost")
_NO_LEADER = BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, "t-0")


def test_unavailable_brokers_are_named_at_once_with_how_long_they_are_tried() -> None:
    trouble = OperationFailures("reading t-0", "kafkaConsumer.pollTimeoutMs")
    assert trouble.add_failure(_AWAY, 7_000, 127_000) == (
        "reading t-0 has failed and is tried again for up to 120 s (kafkaConsumer.pollTimeoutMs): "
        "no broker could be reached: h:1: Connection refused"
    )


def test_then_seldom_with_how_long_it_has_lasted() -> None:
    trouble = OperationFailures("reading t-0")
    said = [
        (at_s, text)
        for at_s in range(400)
        if (text := trouble.add_failure(_AWAY, at_s * 1_000, 400_000)) is not None
    ]
    assert [at_s for at_s, _ in said] == [0, 5, 15, 35, 75, 135, 195, 255, 315, 375]
    assert said[2][1] == (
        f"reading t-0 has failed for 15 s and is tried again for up to 385 s: {_AWAY}"
    )


def test_the_end_is_logged_once() -> None:
    trouble = OperationFailures("reading t-0")
    trouble.add_failure(_AWAY, 1_000, 9_000)
    trouble.add_failure(_AWAY, 3_000, 9_000)
    assert trouble.is_open
    assert trouble.reset(3_500) == "reading t-0 works again after 2 s"
    assert not trouble.is_open
    assert trouble.reset(3_600) is None
    # The next outage begins at the beginning.
    again = trouble.add_failure(_AWAY, 50_000, 60_000)
    assert again is not None and "has failed and is tried again for up to 10 s" in again


def test_a_connection_that_is_there_again_is_not_worth_a_word() -> None:
    trouble = OperationFailures("reading t-0")
    assert trouble.add_failure(_LOST, 0, 9_000) is None
    assert trouble.reset(100) is None
    assert trouble.add_failure(_LOST, 200, 9_000) is None
    assert trouble.add_failure(ConnectionFailed("could not connect"), 300, 9_000) is not None


def test_a_broker_that_hangs_is_named() -> None:
    assert (
        OperationFailures("reading t-0").add_failure(RequestTimedOut("no reply"), 30_000, 99_000)
        is not None
    )


def test_leaders_have_time_to_change() -> None:
    trouble = OperationFailures("writing records")
    said = [trouble.add_failure(_NO_LEADER, at_ms, 99_000) for at_ms in range(0, 6_000, 1_000)]
    assert said[:5] == [None] * 5
    assert said[5] is not None and "has failed for 5 s" in said[5]


def test_of_operations_within_each_other_the_outermost_speaks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_ms = 0
    retries = Retries(lambda: now_ms, "kafka.")
    outer = retries.failures_of("reading t-0", "default.api.timeout.ms")
    inner = retries.failures_of("asking for metadata", "request.timeout.ms")
    with retries.attribute_to(outer, lambda: 60_000), retries.attribute_to(inner, lambda: 1_000):
        retries.on_failure(inner, _AWAY, 1_000)
        retries.on_success(inner)
    assert caplog.messages == [
        "reading t-0 has failed and is tried again for up to 60 s (kafka.default.api.timeout.ms): "
        f"{_AWAY}"
    ]
    now_ms = 4_000
    retries.on_success(outer)
    retries.on_success(outer)
    assert caplog.messages[1:] == ["reading t-0 works again after 4 s"]
    assert {(r.name, r.levelno) for r in caplog.records} == {
        ("pyspark_klog.client.cluster.retry_warnings", logging.WARNING)
    }


def test_an_operation_with_its_own_log_lines_mutes_the_warnings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    retries = Retries(lambda: 0)
    retries.mute()
    retries.on_failure(retries.failures_of("committing"), _AWAY, 1_000)
    assert caplog.messages == []
