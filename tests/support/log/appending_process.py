"""A process that appends until it is killed.

``python -m tests.support.log.appending_process DIRECTORY SEQUENCE``.

For each acknowledged batch it prints `sequence offset`; the parent kills it whenever it likes.
"""

import sys
from dataclasses import replace
from pathlib import Path

from klog_broker.runtime.disk.files import RealFiles
from tests.support.log.harness import PARTITION, SMALL, TOPIC_ID, append, batch, open_manager

CHILD_CONFIG = replace(SMALL, segment_bytes=6_000)
PRODUCER_ID = 7
COUNT = 3


def main(directory: str, first_sequence: str) -> None:
    """Append batches of COUNT records, numbered by their timestamps."""
    manager = open_manager(RealFiles(), config=CHILD_CONFIG, directory=Path(directory))
    log = manager.create(PARTITION, TOPIC_ID, CHILD_CONFIG)
    sequence = int(first_sequence)
    while True:
        records = batch(
            COUNT, producer_id=PRODUCER_ID, base_sequence=sequence, timestamp_ms=sequence
        )
        info = append(log, records)
        print(sequence, info.first_offset, flush=True)
        sequence += COUNT


if __name__ == "__main__":
    main(*sys.argv[1:])
