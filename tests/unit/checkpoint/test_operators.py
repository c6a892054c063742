"""The metadata of stateful operators, in texts that Spark 4.3 wrote."""

import pytest

from pyspark_klog.checkpoint.errors import CheckpointError
from pyspark_klog.checkpoint.operators import Operator, newest_metadata, parse_operator

V1 = (
    'v1\n{"operatorInfo":{"operatorId":0,"operatorName":"stateStoreSave"},"stateStoreInfo":'
    '[{"storeName":"default","numColsPrefixKey":0,"numPartitions":2}]}'
)
V2 = (
    'v2\n{"operatorInfo":{"operatorId":0,"operatorName":"transformWithStateInPandasExec"},'
    '"stateStoreInfo":[],"operatorPropertiesJson":"{}"}'
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (V1, "operator 4 (stateStoreSave, an aggregation)"),
        (V2, "operator 4 (transformWithStateInPandasExec, transformWithState)"),
    ],
)
def test_an_operator_is_read_from_both_versions(text: str, shown: str) -> None:
    assert str(parse_operator(4, text, "state/4/_metadata/metadata")) == shown


@pytest.mark.parametrize("text", ["", "v1", "v1\n{}", "v1\n[]", f"x{V1}"])
def test_damaged_metadata_is_named(text: str) -> None:
    with pytest.raises(CheckpointError, match=r"^state/0/_metadata/metadata begins with"):
        parse_operator(0, text, "state/0/_metadata/metadata")


def test_the_metadata_of_the_newest_batch_counts() -> None:
    assert newest_metadata(["9", "10", ".10.crc"]) == "10"
    assert newest_metadata([]) is None


@pytest.mark.parametrize(
    ("name", "stays_right"),
    [("dedupe", True), ("dedupeWithinWatermark", True), ("stateStoreSave", False), ("", False)],
)
def test_only_deduplication_stays_right_after_any_move(name: str, stays_right: bool) -> None:
    assert Operator(0, name).is_right_after_any_move is stays_right
