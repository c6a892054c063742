"""The border as a property's text, and the topic that a table belongs to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_klog.lake_tables.border import Origin, border_text, parse_border
from pyspark_klog.lake_tables.errors import LakeError, OtherTopic

_BORDERS = st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))


@given(_BORDERS)
def test_a_border_survives_as_text(border: dict[int, int]) -> None:
    text = border_text(border)
    assert parse_border(text, "t") == border
    assert border_text(parse_border(text, "t")) == text


@pytest.mark.parametrize(
    "text",
    ["", "7", "null", "[]", "[1]", '"0"', "{", '{"a": 1}', '{"0": null}', '{"0": "1"}',
     '{"0": 1.5}', '{"0": true}', '{"0": -1}', '{"-1": 0}', '{"0": {}}', "[" * 100_000],
)  # fmt: skip
def test_a_border_that_someone_has_changed_names_the_table_and_the_form(text: str) -> None:
    with pytest.raises(LakeError, match=r"the table: its property klog\.border .* JSON object"):
        parse_border(text, "the table")


def test_a_table_takes_only_records_of_its_own_topic() -> None:
    own = Origin("c", "orders", "1")
    own.check(own, "t")
    with pytest.raises(OtherTopic, match="another place"):
        own.check(Origin("c", "others", "1"), "t")
    for found in (Origin("d", "orders", "1"), Origin("c", "orders", "2")):
        with pytest.raises(OtherTopic, match="klog lake restart"):
            own.check(found, "t")


def test_brokers_without_topic_ids_are_recognized_by_name_and_cluster() -> None:
    for own, found in (("", "1"), ("1", ""), ("", "")):
        Origin("c", "orders", own).check(Origin("c", "orders", found), "t")
