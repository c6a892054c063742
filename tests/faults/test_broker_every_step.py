"""The power of a whole broker fails at each of its steps on the disk while clients use it.

Everything is flushed before its response. So the next start has all that a response has
acknowledged, and nothing that no client has sent. `./dev test` takes one step of three;
KLOG_EVERY_STEP=1 takes all.
"""

from __future__ import annotations

import os
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from pyspark_klog.protocol.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest
from pyspark_klog.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pyspark_klog.protocol.apis.init_producer_id import InitProducerIdRequest
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.record import Record
from tests.support.cluster.broker import NOW_MS, MemoryBroker
from tests.support.coordinator.transaction_client import (
    PLAIN,
    MemoryClient,
    broker_with_coordinators,
)
from tests.support.log.harness import read_all
from tests.support.raw_requests import batch, produce_request
from tests.support.runtime.crash_points import CrashPoint, crash_points
from tests.support.runtime.memory_files import MemoryFiles

SETTINGS = {
    "log_flush_interval_messages": 1,
    "log_cleaner_backoff_ms": 1_000,
    "log_cleaner_min_cleanable_ratio": 0,
    "log_retention_check_interval_ms": 1_000,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 1_000,
}
STRIDE = 1 if os.environ.get("KLOG_EVERY_STEP") else 3
PARTITION = TopicPartition("made", 0)
KEYS = (b"a", b"b")


@cache
def _prepared() -> MemoryFiles:
    broker = broker_with_coordinators(**SETTINGS)
    _create(broker, "doomed")
    _create(broker, "keyed", **{"cleanup.policy": "compact", "segment.bytes": "300"})
    broker.close()
    return broker.files


def _create(broker: MemoryBroker, name: str, **configs: str) -> None:
    rows = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=rows)
    answer = broker.call(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 7)
    assert answer.topics[0].error_code == 0


@dataclass
class AcknowledgedState:
    """The requests of the clients, and the acknowledged ones."""

    sent: dict[str, list[bytes]] = field(default_factory=dict)
    told: dict[str, list[bytes]] = field(default_factory=dict)
    asked: dict[str, Any] = field(default_factory=dict)
    done: dict[str, Any] = field(default_factory=dict)

    def produce(self, broker: MemoryBroker, topic: str, records: bytes, value: bytes) -> int:
        self.sent.setdefault(topic, []).append(value)
        answer = broker.call(produce_request(topic, records), 9).responses[0]
        row = answer.partition_responses[0]
        assert row.error_code == 0
        self.told.setdefault(topic, []).append(value)
        return int(row.base_offset)


def run_requests(broker: MemoryBroker, facts: AcknowledgedState) -> None:
    """Use each feature a little; each response is a promise."""
    facts.asked["made"] = True
    _create(broker, "made")
    facts.done["made"] = True
    for number in range(3):
        value = b"plain %d" % number
        facts.produce(broker, "made", batch(value), value)
    _idempotent(broker, facts)
    _transactions(broker, facts)
    _commit(broker, facts, 5)
    facts.asked["start"] = 2
    rows = [DeleteRecordsPartition(partition_index=0, offset=2)]
    topics = [DeleteRecordsTopic(name="made", partitions=rows)]
    found = broker.call(DeleteRecordsRequest(topics=topics, timeout_ms=5_000), 2)
    assert found.topics[0].partitions[0].error_code == 0
    _set_retention(broker, facts, "123456")
    _keyed(broker, facts)
    facts.asked["deleted"] = True
    answer = broker.call(DeleteTopicsRequest(topic_names=["doomed"], timeout_ms=5_000), 5)
    assert answer.responses[0].error_code == 0
    facts.done["deleted"] = True
    _commit(broker, facts, 7)
    # Wait until the folder of the deleted topic is removed. Log start offsets are checkpointed once
    # a minute, as in Kafka: until then deleted records may come back.
    broker.pass_time(70_000)
    facts.done["start"] = 2
    broker.close()


def _idempotent(broker: MemoryBroker, facts: AcknowledgedState) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
    answer = broker.call(request, 4)
    assert answer.error_code == 0
    facts.done["producer"] = answer.producer_id
    for sequence in range(2):
        value = b"once %d" % sequence
        records = batch(
            value, producer_id=answer.producer_id, producer_epoch=0, base_sequence=sequence
        )
        offset = facts.produce(broker, "made", records, value)
        facts.done["last"] = (records, offset)


def _transactions(broker: MemoryBroker, facts: AcknowledgedState) -> None:
    client = MemoryClient(broker)
    assert client.init() == 0
    for number, commit in enumerate((True, False)):
        assert client.produce(PLAIN, b"tx %d" % number) is ErrorCode.NONE
        assert client.commit_offsets(number + 1) == [0]
        facts.asked["ends"] = [*facts.asked.get("ends", ()), commit]
        assert client.end_transaction(commit=commit) == 0
        facts.done["ends"] = [*facts.done.get("ends", ()), commit]


def _commit(broker: MemoryBroker, facts: AcknowledgedState, offset: int) -> None:
    facts.asked["position"] = offset
    row = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id="tool",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name="plain", partitions=[row])],
    )
    answer = broker.call(request, 6)
    assert answer.topics[0].partitions[0].error_code == 0
    facts.done["position"] = offset


def _set_retention(broker: MemoryBroker, facts: AcknowledgedState, value: str) -> None:
    facts.asked["retention"] = value
    row = AlterableConfig(name="retention.ms", config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=2, resource_name="made", configs=[row])
    answer = broker.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0
    facts.done["retention"] = value


def _keyed(broker: MemoryBroker, facts: AcknowledgedState) -> None:
    for number in range(8):
        builder = BatchBuilder()
        value = b"%d" % number * 50
        builder.append(KEYS[number % 2], value, NOW_MS)
        facts.produce(broker, "keyed", builder.build(), value)
    before = sum(each.size_bytes for each in broker.log("keyed").segments)
    broker.pass_time(20_000)
    broker.pass_time(20_000)
    after = sum(each.size_bytes for each in broker.log("keyed").segments)
    facts.done["cleaned"] = before - after


def check(files: MemoryFiles, facts: AcknowledgedState) -> None:
    """Check that the next broker has all acknowledged changes, and works."""
    broker = MemoryBroker(files, with_kernel=False, **SETTINGS)
    for _ in range(5):
        broker.pass_time(1_000)
    image = broker.broker.services.metadata.image
    made = image.topic("made") is not None
    assert made or not facts.done.get("made")
    assert facts.asked.get("made") or not made
    doomed = image.topic("doomed") is not None
    assert doomed != facts.done.get("deleted", False) or facts.asked.get("deleted")
    if facts.done.get("deleted"):
        assert not doomed
    if made:
        _check_made(broker, facts)
    _check_keyed(broker, facts)
    _check_transactions(broker, facts)
    position = MemoryClient(broker).committed("tool")
    assert facts.done.get("position", -1) <= position <= facts.asked.get("position", -1)
    broker.close()


def _check_made(broker: MemoryBroker, facts: AcknowledgedState) -> None:
    log = broker.log("made")
    assert facts.done.get("start", 0) <= log.log_start_offset <= facts.asked.get("start", 0)
    values = [record.value for record in read_all(log, log.log_end_offset)]
    sent, told = facts.sent.get("made", []), facts.told.get("made", [])
    first = log.log_start_offset
    assert values == sent[first : first + len(values)]
    assert len(values) + first >= len(told)
    retention = log.config.retention_ms
    expected = {"retention": 604_800_000} | facts.done
    assert retention in (int(expected["retention"]), int(facts.asked.get("retention", -2)))
    if "last" in facts.done and len(told) == len(sent):
        # The batch is known: a retry is not appended again.
        records, offset = facts.done["last"]
        end = log.log_end_offset
        row = broker.call(produce_request("made", records), 9).responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset, log.log_end_offset) == (0, offset, end)


def _check_keyed(broker: MemoryBroker, facts: AcknowledgedState) -> None:
    log = broker.log("keyed")
    found = read_all(log, log.log_end_offset)
    told, sent = facts.told.get("keyed", []), facts.sent.get("keyed", [])
    assert len(told) <= log.log_end_offset <= len(sent)
    last: dict[bytes | None, Record] = {record.key: record for record in found}
    assert all(sent[record.offset] == record.value for record in found)
    for parity, key in enumerate(KEYS):
        offsets = range(parity, log.log_end_offset, 2)
        if offsets:
            assert last[key].offset == offsets[-1]


def _check_transactions(broker: MemoryBroker, facts: AcknowledgedState) -> None:
    client = MemoryClient(broker)
    # The open transaction is aborted, the decided ones end as decided; clients retry meanwhile.
    while (code := client.init()) == ErrorCode.CONCURRENT_TRANSACTIONS and broker.clock.now_ms() < (
        NOW_MS + 60_000
    ):
        broker.pass_time(1_000)
    assert code == 0
    log = broker.log("plain")
    assert client.stable_offset() == log.log_end_offset
    committed = client.committed(stable=True)
    ends, asked = facts.done.get("ends", []), facts.asked.get("ends", [])
    if ends:
        assert committed == 1
    else:
        assert committed in ((-1, 1) if asked else (-1,))
    assert client.produce(PLAIN, b"more") is ErrorCode.NONE
    assert client.end_transaction() == 0


def test_a_run_without_a_crash_performs_every_request() -> None:
    """Check that the run covers everything, so that the steps below can cut it."""
    broker = MemoryBroker(_prepared().killed(), with_kernel=False, **SETTINGS)
    facts, began = AcknowledgedState(), broker.files.steps
    run_requests(broker, facts)
    assert facts.done["cleaned"] > 0
    assert set(facts.done) >= set(facts.asked)
    assert broker.files.steps - began > 100
    check(broker.files.killed(), facts)


def test_acknowledged_changes_outlive_a_power_cut_at_each_step() -> None:
    """File names on the disk change in order, or in any order."""
    files, facts = _prepared().killed(), AcknowledgedState()
    points = crash_points(
        files,
        lambda: run_requests(MemoryBroker(files, with_kernel=False, **SETTINGS), facts),
        lambda: deepcopy(facts),
        stride=STRIDE,
    )
    assert points[-1].step > 100
    points.append(CrashPoint(files.steps + 1, files, facts))  # the power cut after the run
    for step, found, promised in points:
        for keeps_order in (True, False) if STRIDE == 1 else (step % 2 == 0,):
            try:
                check(found.crash(Random(step), keeps_order=keeps_order), deepcopy(promised))
            except BaseException as error:
                error.add_note(f"step {step}, keeps_order {keeps_order}")
                raise
