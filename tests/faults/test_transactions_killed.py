"""SIGKILL in a loop of transactions: each is there once, whole, with its offset, or not at all."""

import random
import threading
from pathlib import Path

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from tests.support.broker_process import BrokerProcess
from tests.support.coordinator.transaction_client import TransactionClient
from tests.support.coordinator.transaction_reading import committed_values
from tests.support.eventually import eventually
from tests.support.raw_client import ConnectionClosed, RawClient
from tests.support.raw_requests import create_topic

KILLS = 8
FIRST, SECOND = TopicPartition("plain", 0), TopicPartition("plain", 1)
SETTINGS = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 3,
    "log.segment.bytes": 16_384,
}


class Loop(threading.Thread):
    """Writes one number after the other, each in a transaction with the group's next offset.

    After a lost response to EndTxn the loop continues from the committed offset.
    """

    def __init__(self, address: tuple[str, int], name: str, *, raises: bool) -> None:
        super().__init__()
        self.address = address
        self.group = name
        self.raises = raises
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with RawClient(self.address) as connection:
                self._write(TransactionClient(connection, self.group, raises=self.raises))
        except (ConnectionClosed, OSError):
            pass  # the broker was killed
        except BaseException as error:
            self.failure = error

    def _write(self, client: TransactionClient) -> None:
        eventually(lambda: client.init() == 0, what="the id")
        number = max(eventually_offset(client, self.group), 0)
        dice = random.Random(number)
        while True:
            values = [b"%s:%d/%d" % (self.group.encode(), number, i) for i in range(1 + number % 3)]
            commit = dice.random() > 0.2
            self._transaction(client, values, number + 1, commit=commit)
            number += commit

    def _transaction(
        self, client: TransactionClient, values: list[bytes], position: int, *, commit: bool
    ) -> None:
        # CONCURRENT_TRANSACTIONS cannot occur: the coordinator's broker leads all partitions.
        for each in (FIRST, SECOND):
            if not self.raises:
                assert client.add(each) == [0]
            assert client.produce(each, *values) is ErrorCode.NONE
        if not self.raises:
            assert client.add_offsets(self.group) == 0
        assert client.commit_offsets(position, self.group) == [0]
        assert client.end_transaction(commit=commit) == 0


def eventually_offset(client: TransactionClient, group: str) -> int:
    """The group's offset, once no transaction can change it."""

    def stable() -> tuple[int]:
        offset = client.committed(group, stable=True)
        assert not isinstance(offset, ErrorCode), offset
        return (offset,)

    return eventually(stable)[0]


@pytest.mark.parametrize("raises", [True, False], ids=["version-2", "version-0"])
def test_killed_again_and_again_every_number_is_there_once(tmp_path: Path, raises: bool) -> None:
    dice = random.Random(11)
    groups = ["one", "two"]
    for life in range(KILLS):
        broker = BrokerProcess(tmp_path / "data", SETTINGS)
        with RawClient(broker.address) as client:
            if not life:
                create_topic(client, "plain", partitions=2)
            for key_type in (0, 1):
                request = FindCoordinatorRequest(key_type=key_type, key="x")
                eventually(lambda r=request: client.call(r, 3).error_code == 0)
        loops = [Loop(broker.address, each, raises=raises) for each in groups]
        for loop in loops:
            loop.start()
        threading.Event().wait(dice.uniform(0.05, 0.6))
        broker.kill()
        for loop in loops:
            loop.join(30)
            assert not loop.is_alive()
            assert loop.failure is None, loop.failure
    with BrokerProcess(tmp_path / "data", SETTINGS) as broker, RawClient(broker.address) as client:
        for group in groups:
            ended = TransactionClient(client, group, raises=raises)
            eventually(lambda e=ended: e.init() == 0)
        for group in groups:
            reader = TransactionClient(client, group)
            count = eventually_offset(reader, group)
            assert count > KILLS
            for partition in (0, 1):
                found = eventually(lambda p=partition: committed_values(client, "plain", p))
                mine = [each for each in found if each.startswith(group.encode() + b":")]
                wanted = [
                    b"%s:%d/%d" % (group.encode(), number, each)
                    for number in range(count)
                    for each in range(1 + number % 3)
                ]
                assert mine == wanted
