"""A process that is killed with SIGKILL while it appends: acknowledged records are there, once."""

import subprocess
import sys
from pathlib import Path
from random import Random

from klog_broker.runtime.disk.files import RealFiles
from tests.support.log.appending_process import CHILD_CONFIG, COUNT
from tests.support.log.harness import PARTITION, open_manager, read_all

ROUNDS = 6
ROOT = Path(__file__).resolve().parents[2]


def test_acknowledged_appends_survive_kill_9(tmp_path: Path) -> None:
    random = Random(1)
    acknowledged: dict[int, int] = {}
    for _ in range(ROUNDS):
        first_sequence = max(acknowledged, default=-COUNT) + COUNT
        _append_and_kill(tmp_path, first_sequence, random.randint(1, 300), acknowledged)
        manager = open_manager(RealFiles(), config=CHILD_CONFIG, directory=tmp_path)
        log = manager.get(PARTITION)
        assert log is not None
        assert not manager.is_clean_start
        assert log.was_unclean
        records = read_all(log)
        assert [record.offset for record in records] == list(range(log.log_end_offset))
        assert [record.timestamp_ms for record in records] == list(range(len(records)))
        for sequence, offset in acknowledged.items():
            assert records[offset].timestamp_ms == sequence
        # At most one batch whose acknowledgement was not read is there as well.
        assert len(records) - len(acknowledged) * COUNT in (0, COUNT)
        manager.release_locks()
    assert len(acknowledged) > 100


def _append_and_kill(
    directory: Path, first_sequence: int, batches: int, acknowledged: dict[int, int]
) -> None:
    child = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.support.log.appending_process",
            str(directory),
            str(first_sequence),
        ],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    assert child.stdout is not None
    try:
        for _ in range(batches):
            line = child.stdout.readline()
            assert line, "the child ended by itself"
            _note(line, acknowledged)
    finally:
        child.kill()
        # Acknowledgements that it printed before the kill count, too.
        rest, _ = child.communicate()
    for line in rest.splitlines(keepends=True):
        if line.endswith("\n"):
            _note(line, acknowledged)


def _note(line: str, acknowledged: dict[int, int]) -> None:
    sequence, offset = map(int, line.split())
    acknowledged[sequence] = offset
