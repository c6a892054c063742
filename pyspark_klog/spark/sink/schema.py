"""The sink's columns: their names, and their types in Spark. Pure."""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from pyspark_klog.spark.errors import OptionError, SchemaError
from pyspark_klog.spark.options.options import Options

_EXPECTED: dict[str, tuple[str, tuple[type[DataType], ...]]] = {
    "value": ("string or binary", (StringType, BinaryType)),
    "key": ("string or binary", (StringType, BinaryType)),
    "topic": ("string", (StringType,)),
    "partition": ("int", (IntegerType,)),
}
_HEADERS = "array<struct<key:string,value:binary>>"


def check_sink_schema(schema: StructType, options: Options) -> None:
    """Refuse a schema whose rows cannot be written.

    :raises SchemaError: for a column that is missing or of a wrong type
    :raises OptionError: if no topic is named
    """
    types: dict[str, DataType] = {}
    for field in schema.fields:
        types.setdefault(field.name, field.dataType)  # the first column of a name counts
    if "value" not in types:
        example = f", as in withColumnRenamed({next(iter(types))!r}, 'value')" if types else ""
        raise SchemaError(
            f"column value is missing; expected it among {list(types)}: rename the column to "
            f"write{example}"
        )
    for name, (words, allowed) in _EXPECTED.items():
        if name in types and not isinstance(types[name], allowed):
            raise SchemaError(
                f"column {name} is {types[name].simpleString()}; expected {words}: cast it"
            )
    if options.timestamp_column is not None:
        _check_timestamps(types, options.timestamp_column)
    if "headers" in types and not _are_headers(types["headers"]):
        raise SchemaError(
            f"column headers is {types['headers'].simpleString()}; expected {_HEADERS}"
        )
    if options.topic is None and "topic" not in types:
        raise OptionError("no topic is named; expected option topic, or a column topic")


def _check_timestamps(types: dict[str, DataType], name: str) -> None:
    if name not in types:
        raise SchemaError(
            f"option timestampColumn names column {name}, which is missing; expected it among "
            f"{list(types)}"
        )
    if not isinstance(types[name], TimestampType):
        raise SchemaError(
            f"option timestampColumn names column {name}, which is {types[name].simpleString()}; "
            f"expected timestamp: cast it, as in withColumn({name!r}, "
            f"col({name!r}).cast('timestamp'))"
        )


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return (
        [f.name.lower() for f in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )
