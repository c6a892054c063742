"""Decoded batches have the very schema that Spark derives from the connector's rows."""

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_klog.records.arrow import DEFAULT_COLUMNS, schema_for
from tests.support.records.kernel_cases import ALL_COLUMNS

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SPARK = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(HEADER)),
    ]
)


def test_the_schema_is_sparks_own() -> None:
    expected = to_arrow_schema(SPARK, timezone="UTC")
    found = schema_for(ALL_COLUMNS)
    assert found.equals(expected, check_metadata=False)
    assert found.field("headers").type.value_field.name == "element"
    assert expected.field("headers").type.value_field.name == "element"
    assert schema_for(DEFAULT_COLUMNS).names == expected.names[:-1]
