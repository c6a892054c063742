"""Data directories as releases of klog left them: python -m tests.support.golden.earlier_releases.

Run from the top of a checkout of the release whose directories are wanted: it starts a broker,
produces, commits and joins a group, ends the broker in good order (``stopped``) or by SIGKILL
(``killed``), and adds a file for each to tests/golden/data_directories. An existing file is never
written again, because it holds the bytes of its release. The expected records in a file are the
records that were sent, not records that were read back.
"""

import json
import sys
import zlib
from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark_klog._version import __version__
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.init_producer_id import InitProducerIdRequest
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient
from tests.support.raw_requests import NOW_MS, create_topic, produced

FOLDER = Path(__file__).parents[2] / "golden" / "data_directories"
HOW = ("stopped", "killed")
TOPIC, PARTITIONS, GROUP, MEMBER = "events", 2, "readers", "reader-1"
CONFIGS = {"segment.bytes": "700", "max.message.bytes": "600"}
SETTINGS = {
    "offsets.topic.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
    "log.index.size.max.bytes": 4096,
    "log.index.interval.bytes": 256,
}
_LINE = 96


@dataclass
class Expected:
    """Expected content: ``records`` by partition, as offset, time, key, value, headers."""

    topic_id: str
    records: list[list[list[Any]]]
    committed: list[tuple[int, str]]
    """Offset and metadata that GROUP has committed, by partition."""
    producer: tuple[int, int, int, int]
    """Partition 0's last batch: producer id, epoch, base sequence, base offset."""


@dataclass
class EarlierDirectory:
    """One file."""

    release: str
    how: str
    files: dict[str, bytes]
    expected: Expected

    @property
    def name(self) -> str:
        return f"klog-{self.release}-{self.how}"

    def save(self) -> None:
        path = FOLDER / f"{self.name}.json"
        if path.exists():
            raise SystemExit(f"{path} is what that release wrote: it stays as it is")
        packed = {name: b64encode(zlib.compress(data, 9)) for name, data in self.files.items()}
        content = {
            "made_by": f"klog {self.release}, tests/support/golden/earlier_releases.py, {self.how}",
            "release": self.release,
            "how": self.how,
            "expected": asdict(self.expected),
            "files": {
                name: [text[at : at + _LINE].decode() for at in range(0, len(text), _LINE)]
                for name, text in sorted(packed.items())
            },
        }
        FOLDER.mkdir(exist_ok=True)
        text = json.dumps(content, ensure_ascii=False, indent=1)
        path.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "EarlierDirectory":
        content = json.loads(path.read_text(encoding="utf-8"))
        files = {
            name: zlib.decompress(b64decode("".join(lines)))
            for name, lines in content["files"].items()
        }
        expected = Expected(**content["expected"])
        return cls(content["release"], content["how"], files, expected)

    def unpack(self, folder: Path) -> None:
        """Put the data directory there."""
        for name, data in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)


def repeat_of(producer: tuple[int, int, int, int]) -> bytes:
    """The producer's last batch once more."""
    producer_id, epoch, base_sequence, offset = producer
    return _batch(offset, Codec.ZSTD, producer_id, epoch, base_sequence)[0]


def _batch(
    offset: int, codec: Codec, producer_id: int = -1, epoch: int = -1, base_sequence: int = -1
) -> tuple[bytes, list[list[Any]]]:
    builder = BatchBuilder(
        codec=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=base_sequence
    )
    records: list[list[Any]] = []
    for number in range(offset, offset + 3):
        key = None if number % 4 == 3 else f"key {number}"
        value = None if number % 5 == 4 else f"välue {number} " * 5
        headers: list[tuple[str, str | None]] = [("h", "x"), ("none", None)] if number % 2 else []
        builder.append(
            key if key is None else key.encode(),
            value if value is None else value.encode(),
            NOW_MS + number,
            [(name, text if text is None else text.encode()) for name, text in headers],
        )
        records.append([number, NOW_MS + number, key, value, headers])
    return builder.build(), records


def _fill(client: RawClient) -> Expected:
    names = {name.replace(".", "_"): value for name, value in CONFIGS.items()}
    topic_id = create_topic(client, TOPIC, PARTITIONS, **names)
    given = client.call(InitProducerIdRequest(transactional_id=None), 4)
    assert given.error_code == 0, given
    records: list[list[list[Any]]] = [[], []]
    last = (0, 0, 0, 0)
    for codec in (*Codec, *Codec):
        for partition, sent in enumerate(records):
            offset = len(sent)
            producer = (given.producer_id, given.producer_epoch, offset) if partition == 0 else ()
            data, expected = _batch(offset, codec, *producer)
            assert produced(client, TOPIC, data, partition=partition) == offset
            sent += expected
            if partition == 0:
                last = (given.producer_id, given.producer_epoch, offset, offset)
    committed = [(7, "seven"), (len(records[1]), "")]
    _commit(client, committed)
    _join(client)
    return Expected(str(topic_id), records, committed, last)


def _commit(client: RawClient, committed: list[tuple[int, str]]) -> None:
    find = FindCoordinatorRequest(key=GROUP)
    eventually(lambda: client.call(find, 3).error_code == 0, what="the coordinator is there")
    rows = [
        OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        for partition, (offset, metadata) in enumerate(committed)
    ]
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=rows)]
    answer = client.call(OffsetCommitRequest(group_id=GROUP, topics=topics), 7)
    assert {each.error_code for each in answer.topics[0].partitions} == {0}


def _join(client: RawClient) -> None:
    join = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=1_800_000,
        rebalance_timeout_ms=60_000,
        group_instance_id=MEMBER,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"subscription")],
    )
    joined = client.call(join, 5)
    assert joined.error_code == 0, joined
    sync = SyncGroupRequest(
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=MEMBER,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
    )
    assert client.call(sync, 3).assignment == b"all"


def _make(how: str, folder: Path) -> EarlierDirectory:
    data = folder / "data"
    with BrokerProcess(data, SETTINGS) as broker:
        with RawClient(broker.address) as client:
            expected = _fill(client)
        if how == "killed":
            broker.kill()
        else:
            assert broker.terminate() == 0
    files = {
        path.relative_to(data).as_posix(): path.read_bytes()
        for path in sorted(data.rglob("*"))
        if path.is_file()
    }
    return EarlierDirectory(__version__, how, files, expected)


def main() -> int:
    for how in HOW:
        with TemporaryDirectory() as folder:
            made = _make(how, Path(folder))
        made.save()
        sys.stdout.write(f"{made.name}: {len(made.files)} files\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
