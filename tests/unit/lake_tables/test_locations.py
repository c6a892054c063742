"""The addresses of a lake and its tables, the tables' names, and the names of data files."""

import pytest

from pyspark_klog.lake_tables.data_files import is_own, new_file_name
from pyspark_klog.lake_tables.errors import LakeError
from pyspark_klog.lake_tables.locations import (
    DeltaDirectory,
    IcebergNamespace,
    parse_destination,
    parse_table,
    table_name,
    table_names,
)


def test_the_two_kinds_of_destinations() -> None:
    assert parse_destination("iceberg:lake.a.b") == IcebergNamespace("lake", "a.b")
    assert parse_destination("delta:/data/lake/") == DeltaDirectory("/data/lake")
    assert parse_destination("delta:s3://bucket/lake") == DeltaDirectory("s3://bucket/lake")
    assert str(parse_destination("iceberg:lake.a.b")) == "iceberg:lake.a.b"


@pytest.mark.parametrize(
    "text",
    ["", "lake", "iceberg:", "iceberg:lake", "iceberg:.a", "iceberg:lake.a..b", "delta:", "x:y"],
)
def test_another_destination_is_refused_with_the_expected_forms(text: str) -> None:
    with pytest.raises(LakeError, match=r"iceberg:CATALOG\.NAMESPACE or delta:PATH"):
        parse_destination(text)


def test_the_address_of_a_table_has_its_place_and_its_name() -> None:
    assert parse_table("iceberg:lake.klog.orders") == (IcebergNamespace("lake", "klog"), "orders")
    assert parse_table("delta:/data/orders/") == (DeltaDirectory("/data"), "orders")
    assert parse_table("delta:s3://b/l/orders") == (DeltaDirectory("s3://b/l"), "orders")
    for text in ("orders", "iceberg:lake.orders", "delta:orders"):
        with pytest.raises(LakeError):
            parse_table(text)


def test_table_names_are_lower_case_without_dots_and_hyphens() -> None:
    assert table_name("Orders.eu-west_1") == "orders_eu_west_1"
    assert table_names(["a.b", "c"]) == {"a.b": "a_b", "c": "c"}


def test_two_topics_with_one_table_name_are_refused() -> None:
    with pytest.raises(LakeError, match=r"a\.b and a-b would both have the table a_b"):
        table_names(["a.b", "a-b"])


def test_data_files_are_recognized_by_name() -> None:
    name = new_file_name(3, 17)
    assert name.startswith("klog-3-00000000000000000017-")
    assert name != new_file_name(3, 17)
    assert is_own(name)
    for other in (f"x{name}", f"{name}.crc", f"{name}\n", name.upper(), "part-0.parquet"):
        assert not is_own(other)
