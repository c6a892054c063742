"""A small Produce that costs much, on real sockets and threads: others are served meanwhile."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from klog_broker.produce.kernel_loading import load_produce_kernel
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.threads.helpers import HelperThreads
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.produce import ProduceRequest
from pyspark_klog.records import layout as at
from pyspark_klog.records.builder import write_header
from pyspark_klog.records.compression import Codec, compress
from pyspark_klog.records.legacy import encode_message
from tests.support.broker_thread import BrokerThread
from tests.support.eventually import eventually
from tests.support.raw_requests import batch, create_topic, produce_request, produced, read_all

EMPTY_RECORD = bytes([12, 0, 0, 0, 1, 1, 0])


class GatedHelpers(HelperThreads):
    """Threads whose work waits at a gate."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop, 4, "gated")
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = 0

    def submit(self, work: Callable[[], Any], on_done: Callable[..., None]) -> None:
        def gated() -> Any:
            self.waiting += 1
            assert self.gate.wait(60)
            return work()

        super().submit(gated, on_done)


def empty_records(count: int, claimed: int | None = None) -> bytes:
    """A gzip batch of some hundred bytes a 100,000 records, all with the offset delta 0."""
    section = compress(Codec.GZIP, EMPTY_RECORD * count)
    data = bytearray(at.BATCH_HEADER_BYTES) + section
    count = claimed or count
    write_header(
        data,
        base_offset=0,
        leader_epoch=-1,
        attributes=Codec.GZIP,
        last_offset_delta=count - 1,
        timestamps_ms=(0, 0),
        producer=(-1, -1, -1),
        record_count=count,
    )
    return bytes(data)


def test_a_second_client_is_answered_while_the_first_one_s_batch_is_validated(
    tmp_path: Path,
) -> None:
    gates: list[GatedHelpers] = []

    def make(loop: Loop) -> GatedHelpers:
        gates.append(GatedHelpers(loop))
        return gates[0]

    with (
        BrokerThread(tmp_path / "data", make_helpers=make) as thread,
        thread.client() as hostile,
        thread.client() as second,
    ):
        create_topic(second, "t")
        (helpers,) = gates
        helpers.waiting = 0
        helpers.gate.clear()
        try:
            for records in (empty_records(300_000), batch(b"behind it")):
                hostile.send(produce_request("t", records, acks=1), 9)
            eventually(lambda: helpers.waiting == 1)
            values = [b"%d" % number for number in range(20)]
            assert [produced(second, "t", batch(value)) for value in values] == list(range(20))
            assert [record.value for record in read_all(second, "t")] == values
            assert not hostile.has_answer(0.05)
        finally:
            helpers.gate.set()
        answers = [hostile.receive(ProduceRequest, 9).responses[0] for _ in range(2)]
        assert [each.partition_responses[0].base_offset for each in answers] == [20, 300_020]


def test_hostile_requests_are_answered_and_the_broker_goes_on(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data", load_kernel=load_produce_kernel) as thread:
        plans = thread.broker.plans
        assert plans is not None
        thread.in_loop(plans.load)
        eventually(lambda: plans.planner is not None, 240)
        with thread.client(timeout_s=60) as hostile, thread.client() as second:
            create_topic(second, "t")
            create_topic(second, "other-codec", compression_type="gzip")
            create_topic(second, "compacted", cleanup_policy="compact")
            message = encode_message(1, 0, 0, None, None)
            wrapper = encode_message(
                1, 0, 0, None, compress(Codec.GZIP, message * 100_000), Codec.GZIP
            )
            zeros = batch(bytes(120 << 20), codec=Codec.GZIP)
            cases = [
                ("t", empty_records(300_000), 9, ErrorCode.NONE),
                ("t", empty_records(1, claimed=5_000_000), 9, ErrorCode.MESSAGE_TOO_LARGE),
                ("t", zeros, 9, ErrorCode.NONE),
                ("t", batch(bytes(130 << 20), codec=Codec.ZSTD), 9, ErrorCode.MESSAGE_TOO_LARGE),
                ("other-codec", batch(*[b"v" * 10] * 20_000), 9, ErrorCode.NONE),
                ("compacted", empty_records(100_000), 9, ErrorCode.INVALID_RECORD),
                ("t", wrapper, 2, ErrorCode.NONE),
                ("t", message * 300_000, 2, ErrorCode.MESSAGE_TOO_LARGE),
            ]
            for topic, records, version, code in cases:
                hostile.send(produce_request(topic, records, acks=1), version)
                answer = hostile.receive(ProduceRequest, version)
                answer = answer.responses[0].partition_responses[0]
                assert answer.error_code == code
            # One record more than the inflated ones: nothing is missing, nothing came twice.
            assert produced(second, "t", batch(b"last")) == 300_000 + 1 + 100_000
