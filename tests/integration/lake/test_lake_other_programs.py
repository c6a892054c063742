"""Other programs change a table of klog lake between two commits of the copier."""

import pyarrow as pa
import pytest

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.lake_tables.data_files import new_file_name
from pyspark_klog.lake_tables.errors import CommitFailed
from tests.integration.lake.conftest import TOPIC
from tests.support.lake import (
    DELTA,
    ICEBERG,
    Lake,
    copier,
    copy_all,
    produce,
    table_rows,
    topic_rows,
)

FAR_MS = 1 << 60


def test_compaction_and_expiry_by_another_program_do_no_harm(
    lake: Lake, kind: str, client: BlockingClient, servers: str
) -> None:
    for values in (["a", "b"], ["c", "d"], ["e"]):
        produce(servers, TOPIC, values)
        copy_all(client, copier(client, TOPIC, lake.table(kind, TOPIC)))
        _compact(lake, kind)
    assert table_rows(lake.table(kind, TOPIC)) == topic_rows(servers, TOPIC)


def test_a_compaction_during_a_copy_refuses_the_commit(
    lake: Lake, kind: str, client: BlockingClient, servers: str
) -> None:
    for values in (["a", "b"], ["c", "d"]):
        produce(servers, TOPIC, values)
        copy_all(client, copier(client, TOPIC, lake.table(kind, TOPIC)))
    produce(servers, TOPIC, ["e"])
    compactions = iter([None])

    def compact(name: str) -> None:
        if name == "commit":
            for _ in compactions:
                _compact(lake, kind)

    copying = copier(client, TOPIC, lake.table(kind, TOPIC), on_step=compact)
    assert not copying.copy(copying.backlog())
    copy_all(client, copying)
    assert table_rows(lake.table(kind, TOPIC)) == topic_rows(servers, TOPIC)


def test_another_programs_commit_does_not_count_as_the_last_copy(
    lake: Lake, kind: str, client: BlockingClient, servers: str
) -> None:
    """A regular compaction must not put the next copy off for ever."""
    for values in (["a", "b"], ["c", "d"]):
        produce(servers, TOPIC, values)
        copy_all(client, copier(client, TOPIC, lake.table(kind, TOPIC)))
    before = copier(client, TOPIC, lake.table(kind, TOPIC)).backlog().head
    _compact(lake, kind, forgets=False)
    assert copier(client, TOPIC, lake.table(kind, TOPIC)).backlog().head == before


def test_a_table_that_was_set_back_gets_its_rows_again(
    lake: Lake, kind: str, client: BlockingClient, servers: str
) -> None:
    produce(servers, TOPIC, ["a", "b"])
    copy_all(client, copier(client, TOPIC, lake.table(kind, TOPIC)))
    stored = lake.stored(kind, TOPIC)
    first = stored.version() if kind == DELTA else stored.current_snapshot().snapshot_id
    produce(servers, TOPIC, ["c", "d"])
    copy_all(client, copier(client, TOPIC, lake.table(kind, TOPIC)))
    stored = lake.stored(kind, TOPIC)
    if kind == DELTA:
        stored.restore(first)
    else:
        stored.manage_snapshots().rollback_to_snapshot(first).commit()
    assert table_rows(lake.table(kind, TOPIC)).total() == 2
    produce(servers, TOPIC, ["e", "f"])
    copy_all(client, copier(client, TOPIC, lake.table(kind, TOPIC)))
    assert table_rows(lake.table(kind, TOPIC)) == topic_rows(servers, TOPIC)


def test_deltas_border_outlives_the_commits_in_its_log(
    lake: Lake, client: BlockingClient, servers: str
) -> None:
    produce(servers, TOPIC, ["a", "b", "c"])
    copy_all(client, copier(client, TOPIC, lake.table(DELTA, TOPIC)))
    stored = lake.stored(DELTA, TOPIC)
    stored.alter.set_table_properties({"owner": "someone"}, raise_if_not_exists=False)
    lake.stored(DELTA, TOPIC).create_checkpoint()
    *old, _newest = sorted(lake.folder.glob("delta/*/_delta_log/*.json"))
    for commit in old:
        commit.unlink()
    produce(servers, TOPIC, ["d", "e"])
    copy_all(client, copier(client, TOPIC, lake.table(DELTA, TOPIC)))
    assert table_rows(lake.table(DELTA, TOPIC)) == topic_rows(servers, TOPIC)


def test_a_file_that_an_older_version_names_is_no_orphan(
    lake: Lake, kind: str, client: BlockingClient, servers: str
) -> None:
    for values in (["a", "b"], ["c", "d"]):
        produce(servers, TOPIC, values)
        copy_all(client, copier(client, TOPIC, lake.table(kind, TOPIC)))
    _compact(lake, kind, forgets=False)
    if kind == DELTA:
        lake.stored(DELTA, TOPIC).create_checkpoint()
    table = lake.table(kind, TOPIC)
    table.load()
    assert table.orphans(FAR_MS) == []
    _, stream = table.new_file(new_file_name(0, 7))
    stream.write(b"no version names this file")
    stream.close()
    assert len(table.orphans(FAR_MS)) == 1


def test_snapshots_are_expired_with_their_manifests(
    lake: Lake, client: BlockingClient, servers: str
) -> None:
    table = lake.table(ICEBERG, TOPIC)
    for number in range(12):
        produce(servers, TOPIC, [str(number)])
        copy_all(client, copier(client, TOPIC, table, keep_snapshots=4))
    table.load()
    assert table.versions() <= 5
    lists = [*lake.folder.glob("warehouse/**/snap-*.avro")]
    assert len(lists) == table.versions()
    assert table_rows(table) == topic_rows(servers, TOPIC)


def test_a_commit_after_another_programs_commit_is_refused(
    lake: Lake, kind: str, client: BlockingClient, servers: str
) -> None:
    produce(servers, TOPIC, ["a", "b"])
    table = lake.table(kind, TOPIC)
    copy_all(client, copier(client, TOPIC, table))
    produce(servers, TOPIC, ["c", "d"])
    copy_all(client, copier(client, TOPIC, table))
    head = table.load()
    assert head is not None
    _compact(lake, kind)
    with pytest.raises(CommitFailed):
        table.commit((), head.border)


def _compact(lake: Lake, kind: str, *, forgets: bool = True) -> None:
    """Rewrite a table's rows into one file, and forget the versions before."""
    if kind == DELTA:
        table = lake.stored(DELTA, TOPIC)
        table.optimize.compact()
        if forgets:
            table.create_checkpoint()
            table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        return
    stored = lake.stored(ICEBERG, TOPIC)
    rows: pa.Table = stored.scan().to_arrow()
    stored.overwrite(rows)
    if not forgets:
        return
    kept = stored.current_snapshot().snapshot_id
    others = [each.snapshot_id for each in stored.snapshots() if each.snapshot_id != kept]
    stored.maintenance.expire_snapshots().by_ids(others).commit()
