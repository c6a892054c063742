"""Produce, as far as what it asks of a partition before it appends goes."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId
from tests.support.produce_frames import answers, batch, frame
from tests.support.produce_paths import MemoryBroker, new_broker


def with_replicas(broker: MemoryBroker, name: str, replicas: int) -> None:
    """As metadata would have it if other brokers, none of them in sync, had replicas too."""
    services: Any = broker.broker.services
    image = services.metadata.image
    (state,) = image.topics[name].partitions
    state = replace(state, replicas=tuple(BrokerId(number) for number in range(replicas)))
    image = image.with_topics([replace(image.topics[name], partitions=(state,))])
    services.metadata = SimpleNamespace(image=image)


@pytest.mark.parametrize("with_kernel", [True, False])
@pytest.mark.parametrize(("replicas", "code"), [(1, 0), (2, ErrorCode.NOT_ENOUGH_REPLICAS)])
def test_acks_all_asks_for_no_more_replicas_than_there_are(
    with_kernel: bool, replicas: int, code: int
) -> None:
    """As since Kafka 3.7: min.insync.replicas=2 counts as 1 where there is one replica."""
    broker = new_broker(with_kernel=with_kernel)
    with_replicas(broker, "two-in-sync", replicas)
    stream = broker.connect()
    stream.inbox += frame(batch(b"a"), "two-in-sync", acks=-1)
    broker.turns()
    assert [each.error_code for each in answers(stream)] == [code]
    assert broker.log("two-in-sync").log_end_offset == (0 if code else 1)
    assert broker.planned == (1 if with_kernel and not code else 0)


def test_a_reply_that_waits_for_the_watermark_starts_no_sync() -> None:
    broker = new_broker(with_kernel=False)
    log = broker.log("plain")
    # As if followers had yet to fetch: nobody raises the watermark.
    listener, log.listener = log.listener, None
    syncs = broker.files.syncs
    stream = broker.connect()
    stream.inbox += frame(batch(b"a"), acks=-1)
    broker.turns()
    assert (log.log_end_offset, log.flushed_offset, broker.files.syncs) == (1, 0, syncs)
    assert answers(stream) == []
    log.listener = listener
    log.set_high_watermark(1)
    broker.broker.loop.run_turn(0)
    assert [each.error_code for each in answers(stream)] == [0]
