"""A data directory that is copied while the broker writes, as docs/deployment.md recommends."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.support.broker_thread import BrokerThread
from tests.support.raw_client import RawClient
from tests.support.raw_requests import batch, create_topic, produced, read_all

FIRST = ("klog-metadata", "meta.properties", "log-start-offset-checkpoint")
LAST = "cleaner-offset-checkpoint"
LEFT_OUT = (
    ".lock",
    "klog-syncs",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)


def copy(data: Path, backup: Path, meanwhile: Callable[[], None]) -> None:
    """Copy the files of FIRST, then all others, then LAST, with writes between any two files."""
    backup.mkdir()
    for name in FIRST:
        if (data / name).exists():
            shutil.copy(data / name, backup / name)
        meanwhile()
    for folder in sorted(path for path in data.iterdir() if path.is_dir()):
        (backup / folder.name).mkdir()
        for _ in range(2):
            # The worst order: first the active segment, last the segments that were rolled
            # meanwhile.
            for path in sorted(folder.iterdir(), key=_worst, reverse=True):
                if not (backup / folder.name / path.name).exists():
                    # A checkpoint may be replaced between its listing and its copying (rsync's exit
                    # code 24).
                    with suppress(FileNotFoundError):
                        shutil.copy(path, backup / folder.name / path.name)
                    meanwhile()
    if (data / LAST).exists():
        shutil.copy(data / LAST, backup / LAST)
    # A checkpoint may be about to be replaced, which leaves a .tmp file.
    beside = {path.name.removesuffix(".tmp") for path in data.iterdir() if path.is_file()}
    assert beside <= {*FIRST, LAST, *LEFT_OUT}


def _worst(path: Path) -> tuple[bool, str]:
    return path.suffix == ".log", path.name


def values(client: RawClient, partition: int) -> list[bytes | None]:
    return [record.value for record in read_all(client, "t", partition)]


def test_what_was_copied_while_it_was_written_is_a_beginning_of_each_log(tmp_path: Path) -> None:
    settings = {
        "log.index.size.max.bytes": 4096,
        "log.index.interval.bytes": 256,
        "log.flush.offset.checkpoint.interval.ms": 1,
    }
    sent: list[bytes] = []
    with BrokerThread(tmp_path / "data", settings) as thread, thread.client() as client:
        create_topic(client, "t", partitions=2, segment_bytes=1000)

        def produce() -> None:
            for _ in range(2):
                sent.append(b"%d" % len(sent) * 20)
                for partition in (0, 1):
                    produced(client, "t", batch(sent[-1]), partition=partition)

        for _ in range(10):
            produce()
        at_begin = len(sent)
        copy(tmp_path / "data", tmp_path / "backup", produce)
        assert len(thread.broker.services.logs.logs()) == 2
    found = []
    with BrokerThread(tmp_path / "backup", settings) as thread, thread.client() as client:
        for partition in (0, 1):
            found.append(values(client, partition))
            assert found[-1] == sent[: len(found[-1])]
            assert len(found[-1]) >= at_begin
            assert produced(client, "t", batch(b"new"), partition=partition) == len(found[-1])
    with BrokerThread(tmp_path / "backup", settings) as thread, thread.client() as client:
        for partition in (0, 1):
            assert values(client, partition) == [*found[partition], b"new"]
