"""Descriptors run out at each open in turn while FindCoordinator creates __consumer_offsets."""

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pyspark_klog.protocol.headers import RequestHeader, decode_response, encode_request
from pyspark_klog.protocol.message import Request, Response
from tests.support.cluster.server import make_topic, start
from tests.support.runtime.fake_network import FakeNetwork
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import MemoryFiles

PARTITIONS = 2
ORDERED_AGAIN_MS = 10_000
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


class LimitedFiles(MemoryFiles):
    """Files whose open number ``fail_open_at`` fails, and all later ones."""

    def open_descriptor(self) -> None:
        if self.opens + 1 == self.fail_open_at:
            self.has_descriptors = False
        super().open_descriptor()

    def give_back(self) -> None:
        """Make descriptors free again."""
        self.fail_open_at, self.has_descriptors = None, True


class Client:
    """One connection to a broker on a clock that only ``wait`` moves."""

    def __init__(self) -> None:
        self.files = LimitedFiles()
        network = FakeNetwork()
        self.broker = start(self.files, network=network, offsets_topic_num_partitions=PARTITIONS)
        make_topic(self.broker, "topic")
        self._stream = network.arrive()

    def wait(self, by_ms: int) -> None:
        clock = self.broker.services.clock
        assert isinstance(clock, ManualClock)
        clock.advance(by_ms)
        self.run_turns()

    def run_turns(self) -> None:
        for _ in range(50):
            self.broker.loop.run_turn(0)

    def call(self, request: Request, version: int) -> Response:
        header = RequestHeader(request.api_key, version, 1, "client")
        self._stream.inbox += encode_request(header, request)
        self.run_turns()
        frame = bytes(self._stream.sent[4:])
        assert len(frame) == int.from_bytes(self._stream.sent[:4], "big")
        self._stream.sent.clear()
        return decode_response(frame, request.api_key, version)

    def find(self, group: str = "group-0") -> ErrorCode:
        found = self.call(FindCoordinatorRequest(key=group), 2)
        assert isinstance(found, FindCoordinatorResponse)
        return ErrorCode(found.error_code)

    def commit(self, group: str) -> ErrorCode:
        row = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[OffsetCommitRequestTopic(name="topic", partitions=[row])],
        )
        answer = self.call(request, 6)
        assert isinstance(answer, OffsetCommitResponse)
        return ErrorCode(answer.topics[0].partitions[0].error_code)


def test_a_coordinator_is_found_once_descriptors_are_free_again_without_a_restart() -> None:
    # For each failed open: the wait, from the moment when descriptors were free again.
    waits_ms: list[int] = []
    groups = [f"group-{number}" for number in range(8)]  # of both partitions
    while True:
        client = Client()
        files = client.files
        files.fail_open_at = files.opens + len(waits_ms) + 1
        assert client.find() is NOT_AVAILABLE
        if files.has_descriptors:
            break
        found = {group: client.find(group) for group in groups}
        assert NOT_AVAILABLE in found.values()
        assert set(found.values()) <= {NOT_AVAILABLE, ErrorCode.NONE}
        files.give_back()
        waited_ms = 0
        while not all(client.find(group) is ErrorCode.NONE for group in groups):
            assert waited_ms < ORDERED_AGAIN_MS
            client.wait(1_000)
            waited_ms += 1_000
        assert {client.commit(group) for group in groups} == {ErrorCode.NONE}
        waits_ms.append(waited_ms)
        client.broker.close()
    assert len(waits_ms) > 30
    assert waits_ms[0] < ORDERED_AGAIN_MS  # not even the metadata was written
    assert waits_ms[-1] == ORDERED_AGAIN_MS  # the topic existed, but its log did not
