"""The oldest releases of Python's Kafka clients that run here, each in an environment of its own.

The first run installs them below ``.dev/old-clients``, from wheels only; later runs find them.
``tests/support/client/old_client.py`` drives each release in a child process.
"""

import json
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pyspark_klog.protocol.apis.describe_groups import DescribedGroup, DescribeGroupsRequest
from pyspark_klog.protocol.apis.offset_fetch import OffsetFetchRequest
from pyspark_klog.records.batch import split_batches
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from tests.support.broker_process import BrokerProcess
from tests.support.client.old_client import Row, row_from_json, row_to_json
from tests.support.eventually import eventually
from tests.support.package_environment import python_with
from tests.support.raw_client import RawClient
from tests.support.raw_requests import NOW_MS, create_topic, fetch, first_partition, produced
from tests.support.raw_requests import read_all as raw_read_all

ROOT = Path(__file__).parents[2]
CHILD = ROOT / "tests" / "support" / "client" / "old_client.py"
CHILD_TIMEOUT_S = 120

# Packages that the clients import for snappy, lz4 and zstd; as new as klog's (constraints.txt).
CODEC_PACKAGES = ("cramjam", "python-snappy", "lz4", "xxhash", "zstandard")


class Release(NamedTuple):
    """An old client, and what it cannot do on any broker."""

    requirement: str
    needs: tuple[str, ...] = CODEC_PACKAGES
    # Most of these releases fetch with a version before 10, and read zstd all the same.
    codecs: frozenset[str] = frozenset(Codec.__members__)
    has_headers: bool = True

    @property
    def client(self) -> str:
        return self.requirement.partition("==")[0]


# 1.4.0 to 1.4.2 have an argument named `async`; before 2.0.3 an import hook that 3.12 dropped.
KAFKA_PYTHON_1 = Release(
    "kafka-python==1.4.3",
    codecs=frozenset({"NONE", "GZIP", "SNAPPY", "LZ4"}),
    has_headers=False,
)
KAFKA_PYTHON_2 = Release("kafka-python==2.0.3")


def confluent(version: str) -> Release:
    """librdkafka brings its codecs along."""
    return Release(f"confluent-kafka=={version}", needs=())


# 0.10 to 0.12 take a broker that has Fetch 11 for one that has JoinGroup 5, whatever ApiVersions
# says about that: the first and the last of them are here besides the oldest.
#
# The oldest with a wheel for each Python that also runs there.
RELEASES = {
    (3, 11): [
        KAFKA_PYTHON_1,
        confluent("2.0.2"),
        Release("aiokafka==0.8.0", needs=(*CODEC_PACKAGES, "kafka-python==2.0.2")),
        Release("aiokafka==0.10.0"),
    ],
    (3, 12): [
        KAFKA_PYTHON_2,
        confluent("2.3.0"),
        Release("aiokafka==0.9.0"),
    ],
    (3, 13): [
        KAFKA_PYTHON_2,
        confluent("2.6.0"),
        Release("aiokafka==0.12.0"),
    ],
    (3, 14): [KAFKA_PYTHON_2, confluent("2.12.1"), Release("aiokafka==0.13.0")],
}
HERE = RELEASES[sys.version_info[:2]]


# -- environments -----------------------------------------------------------------------------


def pinned(name: str) -> str:
    """The requirement in constraints.txt; a requirement with a version stays as it is."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [line for line in lines if line.startswith(f"{name}==")]
    return name if "==" in name else found[0]


def environment(release: Release) -> Path:
    """The Python of an environment with this release."""
    return python_with(release.requirement, *map(pinned, release.needs))


class OldClient:
    """A release, and a child process of its Python, which runs one command after the other."""

    def __init__(self, release: Release, python: Path, broker: BrokerProcess, folder: Path) -> None:
        self.release = release
        self._broker = broker
        self._command = [str(python), "-W", "ignore", str(CHILD), release.client]
        self._errors = folder / "stderr"
        self._child = self._start(self._errors)

    def _start(self, log: Path) -> subprocess.Popen[str]:
        with log.open("ab") as stderr:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def _send(self, child: subprocess.Popen[str], **arguments: Any) -> None:
        assert child.stdin is not None
        child.stdin.write(json.dumps({"servers": self._broker.bootstrap_servers, **arguments}))
        child.stdin.write("\n")
        child.stdin.flush()

    def run_command(self, command: str, **arguments: Any) -> Any:
        """Runs a command of old_client.py; returns its result."""
        if self._child.poll() is not None:
            self.close()
            self._child = self._start(self._errors)
        child = self._child
        timer = threading.Timer(CHILD_TIMEOUT_S, child.kill)
        timer.start()
        try:
            self._send(child, command=command, **arguments)
            assert child.stdout is not None
            line = child.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            child.wait(CHILD_TIMEOUT_S)
        assert line, self._errors.read_text(encoding="utf-8")
        return json.loads(line)

    def rows(self, command: str, **arguments: Any) -> list[Row]:
        """Runs a command that prints rows."""
        return [row_from_json(row) for row in self.run_command(command, **arguments)]

    def start_member(self, topic: str, group: str, log: Path) -> subprocess.Popen[str]:
        """A member of a group; it leaves when its stdin is closed."""
        member = self._start(log)
        self._send(member, command="member", topic=topic, group=group)
        return member

    def close(self) -> int:
        """End the child process; return its exit code."""
        self._child.communicate(timeout=CHILD_TIMEOUT_S)
        return self._child.returncode


def leave(member: subprocess.Popen[str]) -> None:
    """Ends a member that ``start_member`` started."""
    member.communicate(timeout=CHILD_TIMEOUT_S)
    assert member.returncode == 0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"group.initial.rebalance.delay.ms": 100, "offsets.topic.num.partitions": 5}
    with BrokerProcess(tmp_path_factory.mktemp("oldest") / "data", settings) as running:
        yield running


@pytest.fixture(scope="module", params=HERE, ids=lambda release: release.requirement)
def old(
    request: pytest.FixtureRequest,
    broker: BrokerProcess,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OldClient]:
    folder = tmp_path_factory.mktemp("old-client")
    client = OldClient(request.param, environment(request.param), broker, folder)
    yield client
    assert client.close() == 0


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.address) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name of this test's own."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)


# -- records ----------------------------------------------------------------------------------

ROWS: list[Row] = [
    (b"key", b"value", []),
    (None, b"no key", []),
    (b"tombstone", None, []),
    (b"", b"", []),
    ("schlüssel".encode(), "wért".encode(), [("h", b"1"), ("h", b"2"), ("empty", b"")]),
    (bytes(range(256)), bytes(range(256)) * 40, [("ü", bytes(range(256)))]),
    *[(b"%d" % number, b"x" * number, []) for number in range(0, 1000, 37)],
]


def rows_for(release: Release) -> list[Row]:
    """ROWS, without the headers that the release does not know."""
    return ROWS if release.has_headers else [(key, value, []) for key, value, _ in ROWS]


def stored_rows(raw: RawClient, topic: str) -> list[Row]:
    return [
        (record.key, record.value, [(header.key, header.value) for header in record.headers])
        for record in raw_read_all(raw, topic)
    ]


def stored_codecs(raw: RawClient, topic: str) -> set[str]:
    data = first_partition(fetch(raw, topic))
    return {batch.codec.name for batch in split_batches(bytes(data.records or b""))}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("old", "codec"),
    [
        pytest.param(release, codec, id=f"{release.requirement}-{codec.lower()}")
        for release in HERE
        for codec in Codec.__members__
        if codec in release.codecs
    ],
    indirect=["old"],
)
def test_an_old_client_writes_what_is_read(
    raw: RawClient, old: OldClient, topic: str, codec: str
) -> None:
    rows = rows_for(old.release)
    create_topic(raw, topic)
    name = None if codec == "NONE" else codec.lower()
    offsets = old.run_command(
        "write", topic=topic, rows=[row_to_json(*row) for row in rows], codec=name
    )
    assert offsets == list(range(len(rows)))
    assert stored_rows(raw, topic) == rows
    # Clients send a batch as it is if compressing it does not pay, as it may not for its first row.
    assert codec in stored_codecs(raw, topic)
    assert old.rows("read", topic=topic, count=len(rows)) == rows


@pytest.mark.timeout(600)
def test_an_old_client_reads_what_others_wrote(raw: RawClient, old: OldClient, topic: str) -> None:
    """All codecs that it can read, one batch after another."""
    create_topic(raw, topic)
    codecs = [codec for codec in Codec if codec.name in old.release.codecs]
    for codec in codecs:
        builder = BatchBuilder(codec=codec)
        for key, value, headers in ROWS:
            builder.append(key, value, NOW_MS, headers)
        produced(raw, topic, builder.build())
    expected = rows_for(old.release) * len(codecs)
    assert old.rows("read", topic=topic, count=len(expected)) == expected


# -- groups -----------------------------------------------------------------------------------

PARTITIONS = 4
RECORDS = 60


def fill(raw: RawClient, topic: str) -> None:
    """RECORDS records, numbered from 0, spread evenly over PARTITIONS partitions."""
    create_topic(raw, topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        builder = BatchBuilder(codec=Codec.GZIP)
        for number in range(partition, RECORDS, PARTITIONS):
            builder.append(None, b"%d" % number, NOW_MS)
        produced(raw, topic, builder.build(), partition=partition)


def described(raw: RawClient, group: str) -> DescribedGroup:
    answer: DescribedGroup = raw.call(DescribeGroupsRequest(groups=[group]), 3).groups[0]
    return answer


def committed(raw: RawClient, group: str) -> int:
    """The sum of the group's committed offsets: records read, as its topics begin at 0."""
    answer = raw.call(OffsetFetchRequest(group_id=group, topics=None), 7)
    return sum(each.committed_offset for row in answer.topics for each in row.partitions)


def assigned(data: bytes) -> list[int]:
    """The partitions in a consumer's assignment of one topic; none before it is assigned."""
    if not data:
        return []
    _, topics, name_bytes = struct.unpack_from(">hih", data)
    if topics == 0:
        return []
    (count,) = struct.unpack_from(">i", data, 8 + name_bytes)
    return list(struct.unpack_from(f">{count}i", data, 12 + name_bytes))


@pytest.mark.timeout(600)
def test_an_old_client_resumes_where_its_group_left_off(
    raw: RawClient, old: OldClient, topic: str
) -> None:
    fill(raw, topic)
    half = RECORDS // 2
    first = old.rows("resume", topic=topic, group=topic, count=half)
    assert described(raw, topic).group_state == "Empty"
    assert committed(raw, topic) == half
    rest = old.rows("resume", topic=topic, group=topic, count=RECORDS - half)
    assert described(raw, topic).group_state == "Empty"
    assert committed(raw, topic) == RECORDS
    numbers = sorted(int(value or b"") for _, value, _ in first + rest)
    assert numbers == list(range(RECORDS))


@pytest.mark.timeout(600)
def test_old_clients_share_a_group_and_one_takes_over_when_the_other_leaves(
    raw: RawClient, old: OldClient, topic: str, tmp_path: Path
) -> None:
    fill(raw, topic)

    def shares() -> list[list[int]]:
        group = described(raw, topic)
        assert group.group_state == "Stable", group
        return sorted(sorted(assigned(each.member_assignment)) for each in group.members)

    members = [old.start_member(topic, topic, tmp_path / f"member-{n}.log") for n in range(2)]
    try:
        eventually(lambda: [len(each) for each in shares()] == [2, 2], 60, "two each")
        assert sorted(shares()[0] + shares()[1]) == [0, 1, 2, 3]
        leave(members[0])
        eventually(lambda: shares() == [[0, 1, 2, 3]], 60, "one has all")
        leave(members[1])
        assert described(raw, topic).group_state == "Empty"
    finally:
        for number, member in enumerate(members):
            if member.poll() is None:
                member.kill()
                member.communicate()
            print((tmp_path / f"member-{number}.log").read_text(encoding="utf-8"))
