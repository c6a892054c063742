"""Record sets in Produce, damaged behind a CRC that fits: kernel and generic path agree.

An input is a few Produce frames of one connection. Two brokers take it, one of them with the
kernel. Their responses and the ends of their logs must be equal, and neither may count a bug.
"""

from functools import cache
from random import Random
from typing import Any

from pyspark_klog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from pyspark_klog.protocol.headers import RequestHeader, encode_request
from pyspark_klog.protocol.keys import ApiKey
from tests.fuzz.corpus import batch, damaged_batch, golden_sets, old_set
from tests.fuzz.mutating import mutated
from tests.fuzz.target import BrokenPromise, Target
from tests.support.cluster.broker import TOPICS, MemoryBroker, log_state, new_broker, topic_ids
from tests.support.records.codec_cases import cases

_TOPICS = ("plain",) * 8 + tuple(TOPICS)
_FIXED_BYTES = 32 << 20
_MOST_BYTES_A_BYTE = 200


@cache
def _oddly_compressed() -> list[bytes]:
    return [case.records for case in cases() if len(case.records) < 2_000]


def _verified(*_: Any, done: Any, **__: Any) -> None:
    """Stands for a coordinator that verifies every transaction."""
    done({})


class Produce(Target):
    """Feeds record sets to two brokers, and compares them."""

    name = "produce"
    block = 200

    def renew(self) -> None:
        self._pair = [new_broker(with_kernel=False), new_broker(with_kernel=True)]
        for broker in self._pair:
            broker.broker.services.verify_transactions = _verified

    def make(self, random: Random) -> bytes:
        sent = b""
        sequence = random.choice((0, 0, 0, 1, 5, 2**31 - 2))
        producer = (random.randrange(200), random.choice((0, 0, 1)))
        for number in range(random.choice((2, 2, 3, 4))):
            records = self._records(random, sequence, producer)
            sequence = (sequence + random.choice((1, 1, 2))) & 0x7FFFFFFF
            sent += self._frame(random, number, records)
        return sent

    def _records(self, random: Random, sequence: int, producer: tuple[int, int]) -> bytes:
        kind = random.randrange(12)
        if kind == 0:
            return old_set(random)
        if kind == 1:
            return mutated(random.choice(golden_sets()), random, golden_sets())
        if kind == 2:
            odd = random.choice(_oddly_compressed())
            return odd if random.random() < 0.5 else damaged_batch(odd, random)
        good = batch(random, sequence=random.choice((None, sequence)), producer=producer)
        if kind < 8:
            return damaged_batch(good, random)
        if kind == 8:
            return mutated(good, random)
        return good + damaged_batch(good, random) if kind == 9 else good

    def _frame(self, random: Random, number: int, records: bytes) -> bytes:
        name = random.choice(_TOPICS)
        version = random.choice((2, 3, 7, 8, 9, 9, 9, 12, 13, 13)) if name else 9
        where: dict[str, Any] = {"name": name}
        if version >= 13:
            where = {"topic_id": topic_ids()[name]}
        rows = [PartitionProduceData(index=0, records=records)]
        if random.random() < 0.1:
            rows.append(PartitionProduceData(index=1, records=records))
        request = ProduceRequest(
            acks=random.choice((1, 1, -1, 0)),
            timeout_ms=100,
            topic_data=[TopicProduceData(**where, partition_data=rows)],
        )
        if version >= 3 and random.random() < 0.3:
            request.transactional_id = "tx"
        header = RequestHeader(ApiKey.PRODUCE, version, number, "c")
        return encode_request(header, request)

    def check(self, data: bytes) -> None:
        seen = [self._feed(broker, data) for broker in self._pair]
        for what, found in seen[0].items():
            if found != seen[1][what]:
                raise BrokenPromise(f"{what}: generic {found!r}, kernel {seen[1][what]!r}")

    def _feed(self, memory: MemoryBroker, data: bytes) -> dict[str, Any]:
        logs = memory.broker.services.logs.logs()
        ends = {log.topic_partition: log.log_end_offset for log in logs}
        stream = memory.connect()
        stream.inbox += data
        memory.turns()
        memory.pass_time(150)
        is_closed = stream.is_closed
        stream.is_at_end = True
        if not is_closed:
            memory.turns()
        if not stream.is_closed:
            raise BrokenPromise("the client is gone, and its connection is not closed")
        if memory.broker.services.requests.bugs.total:
            raise BrokenPromise(f"bugs: {dict(memory.broker.services.requests.bugs.counts)}")
        memory.network.streams.pop(stream.fileno())
        grown = {
            str(log.topic_partition): (log_state(log), _bytes_of(log))
            for log in sorted(logs, key=lambda log: log.topic_partition)
            if log.log_end_offset != ends[log.topic_partition]
        }
        return {"answers": bytes(stream.sent).hex(), "closed": is_closed, "logs": grown}

    def most_bytes(self, data: bytes) -> int:
        return _FIXED_BYTES + _MOST_BYTES_A_BYTE * len(data)


def _bytes_of(log: Any) -> str:
    """The last bytes of the active segment in hex: enough for the records of one input."""
    active = log.segments[-1]
    start = max(active.size_bytes - 8_192, 0)
    return str(active.log_file.pread(active.size_bytes - start, start).hex())


TARGET = Produce
