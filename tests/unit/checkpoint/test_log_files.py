"""The files `offsets/N` and `commits/N`, in texts that Spark 4.2 and 4.3 wrote."""

import json

import pytest

from pyspark_klog.checkpoint.errors import CheckpointError
from pyspark_klog.checkpoint.log_files import parse_batch_ends, parse_next_watermark
from pyspark_klog.ids import TopicPartition

SETTINGS = '{"batchWatermarkMs":1000,"batchTimestampMs":1795823540828,"conf":{"a":"1"}}'
KLOG = '{"orders": {"0": 5, "1": 7}}'
KAFKA = '{"orders":{"0":5,"1":7}}'
ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.mark.parametrize(
    "text",
    [
        f"v1\n{SETTINGS}\n{KLOG}",
        f'v1\n{SETTINGS}\n{KAFKA}\n-\n{{"logOffset":3}}',
        f"v2\n{SETTINGS}\n0:{KLOG}\npayments:{KAFKA}\n2:-",
        f"v1\n\n{KAFKA}",
    ],
)
def test_a_file_of_ends_is_written_as_it_was_read(text: str) -> None:
    assert parse_batch_ends(text, "offsets/3").text() == text


@pytest.mark.parametrize("end", [KLOG, KAFKA])
def test_the_offsets_of_both_connectors_are_read(end: str) -> None:
    ends = parse_batch_ends(f"v1\n{SETTINGS}\n{end}", "offsets/3")
    assert [source.offsets for source in ends.sources] == [{ORDERS_0: 5, ORDERS_1: 7}]
    assert (ends.watermark_ms, ends.planned_at_ms) == (1000, 1795823540828)


@pytest.mark.parametrize(
    ("end", "moved"), [(KLOG, '{"orders": {"0": 6}}'), (KAFKA, '{"orders":{"0":6}}')]
)
def test_moved_offsets_keep_the_spacing_of_the_connector(end: str, moved: str) -> None:
    # Spark compares the offsets of a Python source as text.
    source = parse_batch_ends(f"v1\n{SETTINGS}\n{end}", "offsets/3").sources[0]
    assert source.with_offsets({ORDERS_0: 6}).text == moved


@pytest.mark.parametrize("end", ["-", "12", '{"logOffset":3}', '{"orders":{"0":-1}}', "["])
def test_a_source_with_other_offsets_is_no_kafka_source(end: str) -> None:
    assert parse_batch_ends(f"v1\n{SETTINGS}\n{end}", "offsets/3").sources[0].offsets is None


def test_version_2_names_its_sources() -> None:
    ends = parse_batch_ends(f"v2\n{SETTINGS}\n1:{KLOG}\npayments:-", "offsets/3")
    assert [source.source_id for source in ends.sources] == ["1", "payments"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "offsets/3 is empty; expected v1 or v2"),
        ("v3\n{}", "offsets/3 begins with 'v3'; expected v1 or v2"),
        ("v1", "ends after its first line; expected the batch's settings"),
        (f"v2\n{SETTINGS}\n{{}}", "has the line '{}'; expected the source's name"),
    ],
)
def test_a_damaged_file_of_ends_is_named_with_what_was_expected(text: str, fault: str) -> None:
    with pytest.raises(CheckpointError, match=r"^offsets/3") as error:
        parse_batch_ends(text, "offsets/3")
    assert fault in str(error.value)


def test_a_commit_has_the_next_watermark() -> None:
    ids = json.dumps({"nextBatchWatermarkMs": 7, "stateUniqueIds": {"0": [["a"]]}})
    assert parse_next_watermark(f"v2\n{ids}", "commits/3") == 7
    assert parse_next_watermark("v1\n{}", "commits/3") == 0
    with pytest.raises(CheckpointError, match="commits/3 is empty"):
        parse_next_watermark("", "commits/3")
