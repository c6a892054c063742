"""The code of docs/schema-registry.md: Confluent's serializers and the page read each other."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PySparkException

from tests.support.spark.registry_page import (
    IMPORTS,
    JSON,
    PROTOBUF,
    READ_AVRO,
    WRITE_AVRO,
    RegistryPage,
    registry_page,
)
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANN = {"customer": "ann", "cents": 2**60 + 1, "currency": "USD"}
BOB = {"customer": "bob", "cents": 5, "currency": "EUR"}
FIRST_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "cents", "type": "int"},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "customer", "type": "string"},
        ],
    }
)
JSON_SCHEMA = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {
            "customer": {"type": "string"},
            "cents": {"type": "integer"},
            "currency": {"type": "string"},
        },
    }
)
NEWER_PROTO = """
syntax = "proto3";
package newer;
message Envelope {}
message Order {
  string customer = 1;
  int64 cents = 2;
  string currency = 3;
  string note = 9;
}
"""
"""A later version of the page's file: `Order` has a new field, and the message index 1."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, topics: Topics) -> Iterator[RegistryPage]:
    folder = tmp_path_factory.mktemp("page")
    (folder / "newer.proto").write_text(NEWER_PROTO, encoding="utf-8")
    with registry_page(folder, topics) as page:
        page.compile("newer.proto")
        yield page


@pytest.fixture
def client(page: RegistryPage) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": page.registry.url}) as client:
        yield client


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_goes_both_ways(
    page: RegistryPage, client: SchemaRegistryClient, spark: "SparkSession"
) -> None:
    topic = "avro-orders"
    schemas = (FIRST_SCHEMA, page.module("order_records").SCHEMA)
    first, second = (AvroSerializer(client, schema) for schema in schemas)
    old = first({"cents": 5, "customer": "bob", "note": "x"}, value_of(topic))
    new = second(ANN, value_of(topic))
    assert (old[:5], new[:5]) == (b"\0\0\0\0\1", b"\0\0\0\0\2")
    page.put(topic, [old, new, None, b'{"customer": "eve"}', new[:-2], old])
    page.topics.create(name=f"{topic}-copy")
    page.registry.requests.clear()
    names: dict[str, Any] = {"spark": spark}
    page.run(READ_AVRO, topic, names)
    # Without `sort` of Spark, which would decode in a second worker, too.
    rows = sorted(names["decoded"].collect(), key=lambda row: row.key)
    assert [row.order and row.order.asDict() for row in rows] == [BOB, ANN, None, None, None, BOB]
    assert [row.error for row in rows[:4]] == [None, None, None, "no schema id"]
    assert "EOFError" in rows[4].error
    assert page.registry.requests == {"GET /schemas/ids/1": 1, "GET /schemas/ids/2": 1}

    page.run(WRITE_AVRO, topic, names)
    read_back = AvroDeserializer(client)
    values = page.written(f"{topic}-copy", 4)
    assert [read_back(value) for value in values] == [BOB, ANN, None, BOB]
    assert page.registry.requests["POST /subjects/avro-orders-copy-value/versions"] == 1
    assert client.get_latest_version(f"{topic}-copy-value").schema_id == 2


def test_avro_is_read_by_a_stream(
    page: RegistryPage, client: SchemaRegistryClient, spark: "SparkSession"
) -> None:
    topic = "streamed-orders"
    page.put(topic, [AvroSerializer(client, FIRST_SCHEMA)(BOB, value_of(topic))])
    starts = 'spark.readStream.option("startingOffsets", "earliest")'
    names: dict[str, Any] = {"spark": spark}
    page.run(READ_AVRO.replace("spark.read", starts), topic, names)
    seen: list[Any] = []
    writer = names["orders"].writeStream.trigger(availableNow=True)
    run(writer.foreachBatch(lambda frame, _: seen.extend(frame.collect())).start())
    assert [row.order.asDict() for row in seen] == [BOB]


def test_a_schema_that_the_registry_does_not_have_fails_the_job(
    page: RegistryPage, spark: "SparkSession"
) -> None:
    page.put("lost-orders", [b"\0\0\0\1\0\6ann\2"])
    names: dict[str, Any] = {"spark": spark}
    page.run(READ_AVRO, "lost-orders", names)
    with pytest.raises(PySparkException, match="Schema 256 not found"):
        names["decoded"].collect()


def test_protobuf_goes_both_ways(
    page: RegistryPage, client: SchemaRegistryClient, spark: "SparkSession"
) -> None:
    topic = "protobuf-orders"
    order, newer_order = (page.module(name).Order for name in ("order_pb2", "newer_pb2"))
    old = ProtobufSerializer(order, client)(order(**BOB), value_of(topic))
    newer = newer_order(**ANN, note="x")
    new = ProtobufSerializer(newer_order, client)(newer, value_of(topic))
    assert (old[5:6], new[5:7]) == (b"\0", b"\2\2")
    page.put(topic, [old, new, None, b"", new[:-2]])
    names: dict[str, Any] = {"spark": spark}
    page.run(READ_AVRO, topic, names)
    page.run(IMPORTS, topic, names)
    page.run(PROTOBUF, topic, names)
    rows = names["orders"].sort("key").collect()
    assert [row.order and row.order.asDict() for row in rows] == [BOB, ANN, None]
    read_back = ProtobufDeserializer(order, {}, client)
    values = [row.value for row in names["values"].sort("key").collect()]
    assert [read_back(value) for value in values] == [order(**BOB), order(**ANN), None]


def test_json_goes_both_ways(
    page: RegistryPage, client: SchemaRegistryClient, spark: "SparkSession"
) -> None:
    topic = "json-orders"
    written = JSONSerializer(JSON_SCHEMA, client)(ANN, value_of(topic))
    page.put(topic, [written, None, written[:-1]])
    names: dict[str, Any] = {"spark": spark}
    page.run(READ_AVRO, topic, names)
    page.run(IMPORTS, topic, names)
    names["head"] = written[:5]
    page.run(JSON, topic, names)
    rows = names["decoded"].sort("key").collect()
    assert [row.order and row.order.asDict() for row in rows] == [
        ANN | {"_corrupt_record": None},
        None,
        dict.fromkeys(ANN) | {"_corrupt_record": written[5:-1].decode()},
    ]
    read_back = JSONDeserializer(JSON_SCHEMA, schema_registry_client=client)
    values = [row.value for row in names["values"].sort("key").collect()]
    assert [read_back(value, value_of(topic)) for value in values] == [ANN, None]
