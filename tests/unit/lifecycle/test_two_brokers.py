"""Two brokers in one process share nothing that either writes to."""

from pathlib import Path
from typing import Any

from klog_broker.app import BrokerServer
from klog_broker.log.validation.batch_digests import Digest
from klog_broker.log.validation.kernel_checks import KernelChecks
from klog_broker.log.validation.plain_checks import PlainChecks
from klog_broker.log.validation.record_checks import RecordChecks
from pyspark_klog.records.layout import Buffer
from tests.support.cluster.server import log_of, make_topic, start
from tests.support.log.harness import append, batch
from tests.support.runtime.memory_files import MemoryFiles

_BATCHES = 50


def broker_with_records(records_each: int) -> tuple[BrokerServer, bytes]:
    """A broker that validates in compiled code, and what is in its one segment."""
    files = MemoryFiles()
    broker = start(files)
    make_topic(broker, "t")
    log = log_of(broker, "t")
    for number in range(_BATCHES):
        append(log, batch(records_each, timestamp_ms=1_000 * number))
    broker.services.logs.use_kernels()
    assert isinstance(broker.services.logs.checks, KernelChecks)
    path = Path(log.path) / "00000000000000000000.log"
    data = files.read_bytes(path)[: log.size_bytes]
    return broker, data


class Interrupted(Digest):
    """Runs another scan between a scan and the use of its result."""

    def __init__(self, checks: RecordChecks, data: bytes) -> None:
        super().__init__(position=0, end_offset=0, index_interval_bytes=100)
        self._checks = checks
        self._data = data

    def add_table(self, table: Any, shift: int, buffer: Buffer) -> None:
        found = self._checks.scan(self._data, 0, len(self._data))
        assert len(found.rows) == _BATCHES + 1
        super().add_table(table, shift, buffer)


def test_a_scan_of_one_broker_leaves_what_anothers_has_found() -> None:
    one, data = broker_with_records(1)
    other, others_data = broker_with_records(3)
    expected = Digest(position=0, end_offset=0, index_interval_bytes=100)
    PlainChecks().scan_into(expected, data, 0)
    found = Interrupted(other.services.logs.checks, others_data)
    one.services.logs.checks.scan_into(found, data, 0)
    assert (found.end_offset, found.end_position) == (_BATCHES + 1, len(data))
    assert found.drain_index_rows() == expected.drain_index_rows()
    one.close()
    other.close()
