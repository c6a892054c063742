"""The copier of klog lake: each committed record is in the table once, whatever happens."""

import errno
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from pyspark_klog.client.admin.records_deletion import delete_records
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.ids import TopicPartition
from pyspark_klog.lake_tables.border import Origin
from pyspark_klog.lake_tables.data_files import new_file_name
from pyspark_klog.lake_tables.errors import CommitFailed, OtherTopic, RecordsLost
from tests.integration.lake.conftest import TOPIC
from tests.support.lake import (
    DELTA,
    ICEBERG,
    Lake,
    Transactions,
    committed_client,
    copier,
    copy_all,
    produce,
    read_table,
    table_rows,
    topic_rows,
)


class Stopped(Exception):
    """A test stops the copier."""


# --- what is copied ------------------------------------------------------------------------------
def test_each_committed_record_is_copied_once_and_no_aborted_one(
    lake: Lake, kind: str, client: BlockingClient, servers: str
) -> None:
    table = lake.table(kind, TOPIC)
    writing = Transactions(servers, TOPIC)
    for _ in range(3):
        writing.run(5)
        copy_all(client, copier(client, TOPIC, table))
    found = table_rows(table)
    assert found == topic_rows(servers, TOPIC)
    assert len(found) == 100
    assert not any(value and value.startswith(b"aborted") for _, _, value in found)


def test_the_columns_are_those_of_the_source(
    lake: Lake, kind: str, client: BlockingClient, servers: str
) -> None:
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(
        TOPIC, b"v", key=b"k", headers=[("h", b"1"), ("n", None)], partition=0, timestamp=5
    )
    producer.produce(TOPIC, None, key=None, partition=0, timestamp=7)
    producer.flush()
    table = lake.table(kind, TOPIC)
    copy_all(client, copier(client, TOPIC, table))
    rows = read_table(table).to_pylist()
    assert [row["timestamp"].timestamp() for row in rows] == [0.005, 0.007]
    for row in rows:
        del row["timestamp"]
    of_both = {"topic": TOPIC, "partition": 0, "timestampType": 0}
    assert rows == [
        of_both
        | {"key": b"k", "value": b"v", "offset": 0}
        | {"headers": [{"key": "h", "value": b"1"}, {"key": "n", "value": None}]},
        of_both | {"key": None, "value": None, "offset": 1, "headers": None},
    ]


def test_a_file_ends_at_roll_bytes_and_has_the_bounds_of_its_rows(
    lake: Lake, kind: str, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_klog.lake_tables.parquet_file.ROW_GROUP_BYTES", 1)
    monkeypatch.setattr("pyspark_klog.lake_tables.copier._ARROW_BATCH_BYTES", 1)
    for first in range(0, 400, 40):
        produce(servers, TOPIC, [f"{number:04000d}" for number in range(first, first + 40)])
    table = lake.table(kind, TOPIC)
    with BlockingClient(
        {
            "bootstrap.servers": servers,
            "isolation.level": "read_committed",
            "max.partition.fetch.bytes": "65536",
        }
    ) as client:
        copy_all(client, copier(client, TOPIC, table, roll_bytes=1))
    table.load()
    files = sorted(table.files(), key=lambda each: (each.partition, each.first_offset))
    assert len(files) > 2
    for number in (0, 1):
        of_partition = [each for each in files if each.partition == number]
        assert sum(each.records for each in of_partition) == 200
        ends = [(each.first_offset, each.last_offset) for each in of_partition]
        assert ends[0][0] == 0 and ends[-1][1] == 199
        assert all(then[0] == (last[1] or 0) + 1 for last, then in pairwise(ends))
        assert all((each.first_time_us or 0) > 0 for each in of_partition)


def test_a_range_without_committed_records_moves_the_border(
    lake: Lake, kind: str, client: BlockingClient, servers: str
) -> None:
    table = lake.table(kind, TOPIC)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "aborts"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(TOPIC, b"x", partition=0)
    producer.flush()
    producer.abort_transaction()
    copy_all(client, copier(client, TOPIC, table))
    head = table.load()
    assert head is not None
    assert head.border == {0: 2, 1: 0}
    assert table.files() == []


# --- failures ------------------------------------------------------------------------------------
@pytest.mark.parametrize("step", ["write", "commit", "done"])
def test_a_copier_that_is_stopped_at_a_step_loses_and_doubles_nothing(
    lake: Lake, kind: str, client: BlockingClient, servers: str, step: str
) -> None:
    def stop(name: str) -> None:
        if name == step:
            raise Stopped

    produce(servers, TOPIC, ["a", "b", "c"])
    with pytest.raises(Stopped):
        copy_all(client, copier(client, TOPIC, lake.table(kind, TOPIC), on_step=stop))
    produce(servers, TOPIC, ["d"])
    copy_all(client, copier(client, TOPIC, lake.table(kind, TOPIC)))
    assert table_rows(lake.table(kind, TOPIC)) == topic_rows(servers, TOPIC)


def test_a_commit_that_succeeds_and_then_fails_is_not_repeated(
    lake: Lake,
    kind: str,
    client: BlockingClient,
    servers: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from deltalake import DeltaTable
    from pyiceberg.catalog.sql import SqlCatalog

    owner, name = (
        (SqlCatalog, "commit_table")
        if kind == ICEBERG
        else (DeltaTable, "create_write_transaction")
    )
    original = getattr(owner, name)

    def commit_and_fail(*arguments: Any, **named: Any) -> None:
        original(*arguments, **named)
        monkeypatch.undo()
        raise OSError("the connection was lost")

    produce(servers, TOPIC, ["a", "b", "c"])
    copy_all(client, copier(client, TOPIC, lake.table(kind, TOPIC)))
    produce(servers, TOPIC, ["d", "e"])
    monkeypatch.setattr(owner, name, commit_and_fail)
    copying = copier(client, TOPIC, lake.table(kind, TOPIC))
    copy_all(client, copying)
    assert copying.counts.failed_commits == 1
    assert table_rows(lake.table(kind, TOPIC)) == topic_rows(servers, TOPIC)


def test_of_two_copiers_at_one_border_the_second_is_refused(
    lake: Lake, kind: str, client: BlockingClient, servers: str
) -> None:
    """pyiceberg and delta-rs would repeat the second append on top of the first."""
    produce(servers, TOPIC, ["a", "b", "c"])
    first, second = (copier(client, TOPIC, lake.table(kind, TOPIC)) for _ in range(2))
    backlogs = first.backlog(), second.backlog()
    assert first.copy(backlogs[0])
    assert not second.copy(backlogs[1])
    assert table_rows(lake.table(kind, TOPIC)) == topic_rows(servers, TOPIC)
    copy_all(client, second)
    assert table_rows(lake.table(kind, TOPIC)) == topic_rows(servers, TOPIC)


def test_the_stored_table_keeps_pyicebergs_retries(
    lake: Lake, client: BlockingClient, servers: str
) -> None:
    produce(servers, TOPIC, ["a"])
    table = lake.table(ICEBERG, TOPIC)
    copy_all(client, copier(client, TOPIC, table))
    assert "commit.retry.num-retries" not in lake.stored(ICEBERG, TOPIC).properties


def test_a_commit_names_only_files_that_are_on_the_disk(
    lake: Lake, kind: str, client: BlockingClient, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    original = os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        original(descriptor)

    at_commit: list[list[Path]] = []
    monkeypatch.setattr(os, "fsync", note)
    produce(servers, TOPIC, ["a", "b"])
    copying = copier(
        client,
        TOPIC,
        lake.table(kind, TOPIC),
        on_step=lambda name: at_commit.append([*synced]) if name == "commit" else None,
    )
    copy_all(client, copying)
    names = [Path(each.path).name for each in copying.table.files()]
    [before] = at_commit
    log = "00000000000000000001.json" if kind == DELTA else ".metadata.json"
    assert any(path.name.endswith(log) for path in synced[len(before) :])
    assert len(names) == 2
    assert all(name in {path.name for path in before} for name in names)
    assert len([path for path in before if path.is_dir()]) >= 2


# --- files that no version names -----------------------------------------------------------------
def test_orphans_are_old_own_files_that_no_version_names(
    lake: Lake, kind: str, client: BlockingClient, servers: str
) -> None:
    produce(servers, TOPIC, ["a", "b"])
    table = lake.table(kind, TOPIC)
    copy_all(client, copier(client, TOPIC, table))
    for name in (new_file_name(0, 7), "of-another-program.parquet"):
        _, stream = table.new_file(name)
        stream.write(b"x")
        stream.close()
    table.load()
    assert table.orphans(0) == []
    [orphan] = table.orphans(1 << 60)
    assert "00000000000000000007" in orphan
    table.delete(orphan)
    assert table.orphans(1 << 60) == []
    assert table_rows(table) == topic_rows(servers, TOPIC)


# --- other topics, lost records ------------------------------------------------------------------
def test_a_partition_that_is_added_is_copied_from_its_first_record(
    lake: Lake, kind: str, client: BlockingClient, servers: str
) -> None:
    produce(servers, TOPIC, ["a", "b"])
    copy_all(client, copier(client, TOPIC, lake.table(kind, TOPIC)))
    with Admin(servers) as admin:
        admin.create_partitions(TOPIC, 3)
    produce(servers, TOPIC, ["c", "d", "e"], partitions=3)
    copy_all(client, copier(client, TOPIC, lake.table(kind, TOPIC)))
    assert table_rows(lake.table(kind, TOPIC)) == topic_rows(servers, TOPIC, 3)


def test_a_topic_that_was_made_anew_is_refused_until_the_table_is_restarted(
    lake: Lake, kind: str, client: BlockingClient, servers: str
) -> None:
    table = lake.table(kind, TOPIC)
    produce(servers, TOPIC, ["a", "b"])
    copy_all(client, copier(client, TOPIC, table))
    with Admin(servers) as admin:
        admin.delete_topics([TOPIC])
        admin.create_topics([NewTopic(TOPIC, num_partitions=2)])
    produce(servers, TOPIC, ["c"])
    with pytest.raises(OtherTopic, match="klog lake restart"):
        copy_all(client, copier(client, TOPIC, table))
    found = copier(client, TOPIC, table).look()
    assert found is not None
    table.restart(found.origin, {0: 0, 1: 0})
    copy_all(client, copier(client, TOPIC, lake.table(kind, TOPIC)))
    values = sorted(value or b"" for _, _, value in table_rows(table).elements())
    assert values == [b"a", b"b", b"c"]


def test_records_that_were_deleted_before_they_were_copied_are_an_error(
    lake: Lake, kind: str, client: BlockingClient, servers: str
) -> None:
    table = lake.table(kind, TOPIC)
    produce(servers, TOPIC, ["a", "b"])
    copy_all(client, copier(client, TOPIC, table))
    produce(servers, TOPIC, [str(number) for number in range(20)])
    delete_records(client, {TopicPartition(TOPIC, 0): 5})
    with pytest.raises(RecordsLost, match=r"before offset 1 .* first offset is 5"):
        copy_all(client, copier(client, TOPIC, table))
    copy_all(client, copier(client, TOPIC, table, continue_after_loss=True))
    assert sorted(offset for partition, offset, _ in table_rows(table) if partition == 0) == [
        0,
        *range(5, 11),
    ]


def test_a_log_that_ends_before_the_border_is_an_error_after_a_minute(
    lake: Lake, kind: str, servers: str
) -> None:
    at_ms = [1_000_000]
    produce(servers, TOPIC, ["a", "b"])
    with committed_client(servers, now_ms=lambda: at_ms[0]) as client:
        copying = copier(client, TOPIC, lake.table(kind, TOPIC))
        copy_all(client, copying)
        copying.table.commit((), {0: 100, 1: 1})
        assert copying.backlog().ahead == [0]
        at_ms[0] += 61_000
        with pytest.raises(RecordsLost, match=r"before offset 100, .* ends at 1"):
            copying.backlog()


def test_the_table_of_another_cluster_is_refused(
    lake: Lake, kind: str, client: BlockingClient, servers: str
) -> None:
    table = lake.table(kind, TOPIC)
    table.create(Origin("another cluster", TOPIC, ""), {0: 0, 1: 0})
    with pytest.raises(OtherTopic, match="of cluster another cluster"):
        copy_all(client, copier(client, TOPIC, table))


def test_a_commit_that_fails_again_and_again_is_an_error(
    lake: Lake,
    kind: str,
    client: BlockingClient,
    servers: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copier that tries again without end would write the same files for ever."""
    produce(servers, TOPIC, ["a"])
    copying = copier(client, TOPIC, lake.table(kind, TOPIC))

    def fail(*_: object) -> None:
        raise CommitFailed("the disk is full")

    monkeypatch.setattr(copying.table, "commit", fail)
    with pytest.raises(CommitFailed, match="the disk is full"):
        copy_all(client, copying)
    assert copying.counts.failed_commits == 3


def test_a_disk_that_is_full_at_the_second_file_is_an_error_that_leaves_no_file(
    lake: Lake, kind: str, client: BlockingClient, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(servers, TOPIC, ["a", "b"])
    copying = copier(client, TOPIC, lake.table(kind, TOPIC))
    copying.backlog()
    before = sorted(lake.folder.rglob("*.parquet"))

    fsync = os.fsync

    def fail(file: int) -> None:
        if "klog-1-" in str(Path(f"/proc/self/fd/{file}").readlink()):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(file)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(CommitFailed, match=r"could not be written: .*No space left on device"):
        copy_all(client, copying)
    assert sorted(lake.folder.rglob("*.parquet")) == before
    monkeypatch.undo()
    copy_all(client, copying)
    assert table_rows(lake.table(kind, TOPIC)) == topic_rows(servers, TOPIC)
