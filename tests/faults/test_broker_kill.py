"""SIGKILL in a produce loop: every acknowledged record is there, once, in order."""

import random
import threading
from pathlib import Path

from pyspark_klog.protocol.apis.produce import ProduceRequest
from tests.support.broker_process import BrokerProcess
from tests.support.raw_client import ConnectionClosed, RawClient
from tests.support.raw_requests import batch, create_topic, produce_request, read_all

KILLS = 12
PARTITIONS = 2
IN_FLIGHT = 5


class Producer(threading.Thread):
    """An idempotent producer of one partition.

    The thread sends numbered records with five requests in flight, and repeats the unanswered ones
    at the next broker, as Kafka's clients do.
    """

    def __init__(self, partition: int) -> None:
        super().__init__()
        self.partition = partition
        self.address: tuple[str, int] = ("", 0)
        self.next_number = 0
        self.unanswered: list[int] = []
        self.acknowledged: list[tuple[int, int]] = []
        self.failure: BaseException | None = None

    def records(self, number: int) -> bytes:
        values = [b"%d/%d" % (number, each) for each in range(1 + number % 3)]
        first = sum(1 + each % 3 for each in range(number % 3)) + 6 * (number // 3)
        return batch(
            *values, producer_id=100 + self.partition, producer_epoch=0, base_sequence=first
        )

    def run(self) -> None:
        try:
            with RawClient(self.address) as client:
                for number in self.unanswered:
                    self.send(client, number)
                while True:
                    while len(self.unanswered) < IN_FLIGHT:
                        self.unanswered.append(self.next_number)
                        self.next_number += 1
                        self.send(client, self.unanswered[-1])
                    response = client.receive(ProduceRequest, 9)
                    answer = response.responses[0].partition_responses[0]
                    assert answer.error_code == 0, answer
                    self.acknowledged.append((self.unanswered.pop(0), answer.base_offset))
        except (ConnectionClosed, OSError):
            pass  # the broker was killed
        except BaseException as error:
            self.failure = error

    def send(self, client: RawClient, number: int) -> None:
        client.send(produce_request("t", self.records(number), self.partition), 9)

    def again(self) -> "Producer":
        """The same producer for the next broker: a thread runs only once."""
        following = Producer(self.partition)
        following.next_number = self.next_number
        following.unanswered = self.unanswered
        following.acknowledged = self.acknowledged
        return following


def test_killed_again_and_again_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    dice = random.Random(7)
    producers = [Producer(partition) for partition in range(PARTITIONS)]
    settings = {"log.segment.bytes": 16_384, "log.flush.offset.checkpoint.interval.ms": 50}
    for _ in range(KILLS):
        broker = BrokerProcess(tmp_path / "data", settings)
        if not producers[0].next_number:
            with RawClient(broker.address) as client:
                create_topic(client, "t", partitions=PARTITIONS)
        for producer in producers:
            producer.address = broker.address
            producer.start()
        target = dice.randint(1, 60)
        before = len(producers[0].acknowledged)
        while len(producers[0].acknowledged) - before < target and producers[0].is_alive():
            producers[0].join(0.001)
        broker.kill()
        for producer in producers:
            producer.join(30)
            assert producer.failure is None, producer.failure
        producers = [producer.again() for producer in producers]
    with BrokerProcess(tmp_path / "data", settings) as broker, RawClient(broker.address) as client:
        for producer in producers:
            numbers = [number for number, _ in producer.acknowledged]
            assert numbers == list(range(len(numbers)))
            stored = read_all(client, "t", producer.partition)
            assert [record.offset for record in stored] == list(range(len(stored)))
            expected = [
                b"%d/%d" % (number, each)
                for number in range(producer.next_number)
                for each in range(1 + number % 3)
            ]
            values = [record.value for record in stored]
            assert values == expected[: len(values)]
            last, last_offset = producer.acknowledged[-1]
            assert len(values) >= last_offset + 1 + last % 3
            for number, offset in producer.acknowledged:
                assert values[offset] == b"%d/0" % number
    assert len(producers[0].acknowledged) > KILLS
