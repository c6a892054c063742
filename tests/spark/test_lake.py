"""A topic's table and the records behind its end as one DataFrame, on a real broker."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars
import pytest
from chispa.dataframe_comparer import assert_df_equality
from confluent_kafka import TopicPartition as DeletedTo
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.table.snapshots import Snapshot
from pyspark.errors import PySparkException
from pyspark.sql.functions import count, count_distinct
from pyspark.sql.functions import max as largest

import pyspark_klog
from pyspark_klog.errors import KlogError
from tests.support.lake import KINDS, Lake
from tests.support.spark.deletion_vectors import add_deletion_vector
from tests.support.spark.lake_copies import (
    BASE_MS,
    HOUR_MS,
    CopiedTopic,
    put_in_transaction,
    table,
    union,
)
from tests.support.spark.session import spark_session
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="module")
def copied(topics: Topics, lake: Lake, spark: "SparkSession") -> CopiedTopic:
    return CopiedTopic(topics, lake)


def same(found: "DataFrame", expected: "DataFrame") -> None:
    assert_df_equality(found, expected, ignore_row_order=True)


def values(frame: "DataFrame") -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def delete_before(topics: Topics, topic: str, offset: int, partition: int = 0) -> None:
    """Let the broker delete the records of a partition before an offset."""
    admin = AdminClient({"bootstrap.servers": topics.servers})
    for future in admin.delete_records([DeletedTo(topic, partition, offset)]).values():
        future.result()


@pytest.mark.parametrize("kind", KINDS)
def test_a_union_has_each_record_of_the_topic_once(kind: str, copied: CopiedTopic) -> None:
    found = copied.union(kind, includeHeaders=True)
    same(found, copied.source(includeHeaders=True))
    assert len(found.inputFiles()) == 6
    assert copied.union(kind).columns == copied.source().columns
    per_partition = found.groupBy("partition").agg(count("*"), count_distinct("offset"))
    assert sorted(tuple(row) for row in per_partition.collect()) == [(0, 20, 20), (1, 20, 20)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_alone_needs_no_broker_and_shows_older_versions(
    kind: str, copied: CopiedTopic
) -> None:
    assert copied.table(kind).count() == 30
    if kind == "iceberg":
        catalog = load_catalog("lake", **copied.lake.catalog(kind))
        name = copied.lake.address(kind, copied.topic).removeprefix("iceberg:lake.")
        older = catalog.load_table(name).snapshots()[0].snapshot_id
    else:
        path = copied.lake.address(kind, copied.topic).removeprefix("delta:")
        older = DeltaTable(path).version() - 2
    found = copied.table(kind, snapshot=older, includeHeaders=True)
    ends = json.dumps({copied.topic: {"0": 5, "1": 5}})
    same(found, copied.source(includeHeaders=True, endingOffsets=ends))
    with pytest.raises(KlogError, match=r"has no (snapshot|version) 99\b"):
        copied.table(kind, snapshot=99)


def offsets(first: int, second: int) -> str:
    return json.dumps({"TOPIC": {"0": first, "1": second}})


BOUNDS = [
    # The options, and how many of the table's six files have rows in the bounds.
    ({"startingOffsets": "earliest", "endingOffsets": "latest"}, 6),
    ({"startingOffsets": offsets(7, -2)}, 5),
    ({"startingOffsets": offsets(19, 18), "endingOffsets": offsets(-1, 19)}, 0),
    ({"startingOffsets": offsets(1, 6), "endingOffsets": offsets(5, 8)}, 2),
    ({"startingTimestamp": BASE_MS + HOUR_MS + 3}, 4),
    ({"startingTimestamp": BASE_MS + 3 * HOUR_MS + 2}, 0),
    ({"endingTimestamp": BASE_MS + HOUR_MS}, 2),
    ({"startingTimestamp": BASE_MS + 1, "endingTimestamp": BASE_MS + 3 * HOUR_MS + 4}, 6),
    ({"startingOffsetsByTimestamp": offsets(BASE_MS + 2 * HOUR_MS, BASE_MS + 2 * HOUR_MS)}, 1),
    ({"endingOffsetsByTimestamp": offsets(BASE_MS + 9 * HOUR_MS, BASE_MS + 2)}, 4),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("bounds", "files"), BOUNDS)
def test_bounds_cut_table_and_topic_as_the_source_and_skip_files(
    kind: str, bounds: dict[str, Any], files: int, copied: CopiedTopic
) -> None:
    named = {name: str(value).replace("TOPIC", copied.topic) for name, value in bounds.items()}
    found = copied.union(kind, **named)
    same(found, copied.source(**named))
    assert len([path for path in found.inputFiles() if path.endswith(".parquet")]) == files


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_cut_a_table_alone(kind: str, copied: CopiedTopic) -> None:
    times = {"startingTimestamp": BASE_MS + HOUR_MS, "endingTimestamp": BASE_MS + 2 * HOUR_MS}
    found = values(copied.table(kind, **times))
    # Partition 1 has no record of the third hour that is as late.
    assert found == sorted(
        [b"1-0-%d" % n for n in range(5)]
        + [b"%d-1-%d" % (hour, n) for hour in (1, 2) for n in range(5)]
    )
    with pytest.raises(KlogError, match="startingTimestamp finds no record"):
        copied.table(kind, startingTimestamp=BASE_MS + 9 * HOUR_MS)
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    empty = copied.table(kind, startingTimestamp=BASE_MS + 9 * HOUR_MS, **late)
    assert empty.schema == copied.source().schema
    assert empty.collect() == []


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_those_of_both_halves_in_the_given_order(
    kind: str, copied: CopiedTopic
) -> None:
    names = ["offset", "headers", "key"]
    same(copied.union(kind, columns=names), copied.source(columns=",".join(names)))
    start = offsets(7, 16).replace("TOPIC", copied.topic)
    found = copied.union(kind, columns="value", startingOffsets=start)
    same(found, copied.source(columns="value", startingOffsets=start))


def test_rows_that_come_later_are_read_when_the_frame_is_used(topics: Topics, lake: Lake) -> None:
    topic = topics.create(1)
    topics.put_numbers(topic, range(3))
    lake.copy(topics.servers, topic)
    frame = union(topics, lake, "delta", topic)
    topics.put_numbers(topic, range(3, 5))
    lake.copy(topics.servers, topic)
    assert values(frame) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_table_gives_the_topics_records(kind: str, topics: Topics, lake: Lake) -> None:
    topic = topics.create(1)
    lake.copy(topics.servers, topic)
    assert table(lake, kind, topic, includeHeaders=True).collect() == []
    topics.put_numbers(topic, range(3))
    same(union(topics, lake, kind, topic), topics.batch(subscribe=topic))


@pytest.mark.parametrize("kind", KINDS)
def test_records_that_the_broker_deleted_before_the_border_are_there(
    kind: str, topics: Topics, lake: Lake
) -> None:
    topic = topics.create(1)
    topics.put_numbers(topic, range(6))
    lake.copy(topics.servers, topic, kind)
    topics.put_numbers(topic, range(6, 8))
    delete_before(topics, topic, 4)
    assert values(union(topics, lake, kind, topic)) == [b"%d" % n for n in range(8)]


def test_records_that_were_deleted_and_never_copied_are_an_error(
    topics: Topics, lake: Lake
) -> None:
    topic = topics.create(1)
    topics.put_numbers(topic, range(6))
    lake.copy(topics.servers, topic, "delta")
    topics.put_numbers(topic, range(6, 12))
    delete_before(topics, topic, 9)
    with pytest.raises(
        PySparkException, match=r"offset 6 .* 9 to 12 are there.*failOnDataLoss=false"
    ) as caught:
        values(union(topics, lake, "delta", topic))
    assert topic in str(caught.value)
    found = values(union(topics, lake, "delta", topic, failOnDataLoss=False))
    assert found == sorted(b"%d" % n for n in (*range(6), *range(9, 12)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_that_was_made_again_is_not_mixed_with_the_table(
    kind: str, topics: Topics, lake: Lake
) -> None:
    topic = topics.create(1)
    topics.put_numbers(topic, range(3))
    lake.copy(topics.servers, topic, kind)
    topics.delete(topic)
    topics.create(1, topic)
    topics.put_numbers(topic, range(10, 15))
    with pytest.raises(KlogError, match=r"deleted and created again.*would mix the rows of two"):
        union(topics, lake, kind, topic)
    assert values(table(lake, kind, topic)) == [b"0", b"1", b"2"]


def test_a_table_of_a_topic_with_another_name_is_refused(
    copied: CopiedTopic, topics: Topics
) -> None:
    other = topics.create(1)
    with pytest.raises(KlogError, match=f"not of {other}: read it with topic='{copied.topic}'"):
        pyspark_klog.lake(
            spark_session(),
            copied.lake.address("delta", copied.topic),
            topic=other,
            **topics.options(),
        )


@pytest.mark.parametrize("kind", KINDS)
def test_a_partition_that_was_added_is_read_from_its_beginning(
    kind: str, topics: Topics, lake: Lake
) -> None:
    topic = topics.create(1)
    topics.put_numbers(topic, range(3))
    lake.copy(topics.servers, topic, kind)
    topics.grow(topic, 2)
    topics.put_numbers(topic, range(3, 6), partition=1)
    same(union(topics, lake, kind, topic), topics.batch(subscribe=topic))
    start = json.dumps({topic: {"0": 2, "1": 1}})
    found = union(topics, lake, kind, topic, startingOffsets=start)
    same(found, topics.batch(subscribe=topic, startingOffsets=start))


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_goes_on_where_the_table_ends(
    kind: str, topics: Topics, lake: Lake, tmp_path: Path
) -> None:
    topic = topics.create(2)
    topics.put_numbers(topic, range(4))
    put_in_transaction(topics.servers, topic, [b"aborted"], commit=False)
    lake.copy(topics.servers, topic, kind)
    start = pyspark_klog.lake_offsets(lake.address(kind, topic), catalog=lake.catalog(kind))
    assert json.loads(start) == {topic: {"0": 6, "1": 0}}
    topics.put_numbers(topic, range(4, 6), partition=1)
    put_in_transaction(topics.servers, topic, [b"6"], commit=True)
    stream = topics.stream(
        subscribe=topic, startingOffsets=start, kafka__isolation__level="read_committed"
    )
    writer = stream.writeStream.format("parquet").option("checkpointLocation", tmp_path / "c")
    run(writer.trigger(availableNow=True).start(str(tmp_path / "rows")))
    assert values(spark_session().read.parquet(str(tmp_path / "rows"))) == [b"4", b"5", b"6"]


def test_deletion_vectors_are_refused(topics: Topics, lake: Lake) -> None:
    topic = topics.create(1)
    topics.put_numbers(topic, range(4))
    lake.copy(topics.servers, topic, "delta")
    address = lake.address("delta", topic)
    add_deletion_vector(Path(address.removeprefix("delta:")), rows=(1, 2))
    with pytest.raises(KlogError, match="deletion vectors, which klog does not apply"):
        table(lake, "delta", topic)


def test_row_level_deletes_are_refused(
    copied: CopiedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyiceberg writes no files of deletes, so a snapshot pretends to have a manifest of them."""

    class Deletes:
        content = ManifestContent.DELETES

        def fetch_manifest_entry(self, *_: object, **__: object) -> list[object]:
            return [object()]

    manifests = Snapshot.manifests
    monkeypatch.setattr(Snapshot, "manifests", lambda self, io: [*manifests(self, io), Deletes()])
    with pytest.raises(KlogError, match="row-level deletes, which klog does not apply"):
        copied.table("iceberg")


REFUSED = [
    ({"snapshot": 1}, "expected snapshot alone"),
    ({"subscribe": "other"}, "option subscribe is not for lake: name the one topic by topic="),
    ({"assign": '{"t":[0]}'}, "option assign is not for lake"),
    ({"keys": '["a"]'}, "option keys is not for lake: filter the DataFrame"),
    ({"path": "/data"}, "option path is not for lake"),
    ({"commitGroupId": "g"}, "option commitGroupId is not for lake: begin at earliest"),
    ({"startingOffsets": "latest"}, "expected earliest, or offsets"),
    ({"kafka.isolation.level": "read_uncommitted"}, "expected read_committed, because"),
    ({"startingOffsets": '{"TOPIC":{"0":3}}'}, "expected every partition"),
    ({"startingOffsets": '{"other":{"0":3}}'}, "expected exactly those of subscribe"),
    (
        {"startingTimestamp": str(BASE_MS + HOUR_MS), "endingTimestamp": str(BASE_MS)},
        "would end before it begins",
    ),
]


@pytest.mark.parametrize(("options", "text"), REFUSED)
def test_options_that_have_no_meaning_for_a_union_are_refused(
    options: dict[str, Any], text: str, copied: CopiedTopic
) -> None:
    named = {
        name: value.replace("TOPIC", copied.topic) if isinstance(value, str) else value
        for name, value in options.items()
    }
    address = copied.lake.address("delta", copied.topic)
    with pytest.raises(KlogError, match=text):
        pyspark_klog.lake(
            spark_session(), address, topic=copied.topic, **{**copied.topics.options(), **named}
        )


def test_options_of_brokers_are_refused_without_a_topic(copied: CopiedTopic) -> None:
    with pytest.raises(KlogError, match=r"kafka\.bootstrap\.servers applies to brokers.*topic="):
        copied.table("delta", **copied.topics.options())
    with pytest.raises(KlogError, match="a batch cannot begin at the end"):
        copied.table("delta", startingOffsets="latest")
    with pytest.raises(KlogError, match="startingOffsets is committed"):
        copied.table("delta", startingOffsets="committed")


def test_a_table_that_does_not_exist_is_named(lake: Lake) -> None:
    for kind in KINDS:
        with pytest.raises(KlogError, match="does not exist: correct the table's address"):
            table(lake, kind, "nowhere")


@pytest.mark.parametrize("kind", KINDS)
def test_duckdb_and_polars_find_the_same_rows(kind: str, copied: CopiedTopic) -> None:
    frame = copied.table(kind)
    facts = (count("*"), count_distinct("offset"), largest("offset"))
    found = sorted(tuple(row) for row in frame.groupBy("partition").agg(*facts).collect())
    files = [path.removeprefix("file://") for path in frame.inputFiles()]
    query = (
        'SELECT partition, count(*), count(DISTINCT "offset"), max("offset") FROM rows GROUP BY ALL'
    )
    assert sorted(duckdb.read_parquet(files).query("rows", query).fetchall()) == found
    address = copied.lake.address(kind, copied.topic)
    if kind == "iceberg":
        catalog = load_catalog("lake", **copied.lake.catalog(kind))
        scan = polars.scan_iceberg(catalog.load_table(address.removeprefix("iceberg:lake.")))
    else:
        scan = polars.scan_delta(address.removeprefix("delta:"))
    column = polars.col("offset")
    by = scan.group_by("partition").agg(
        polars.len().cast(int), column.n_unique().cast(int).alias("n"), column.max().alias("m")
    )
    assert sorted(by.collect().rows()) == found
