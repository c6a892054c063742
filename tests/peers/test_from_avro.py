"""The code of docs/schema-registry.md with `from_avro`, which has a jar of its own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PySparkException

from pyspark_klog import testing
from tests.support.peers import spark_avro_jars
from tests.support.spark.registry_page import FROM_AVRO, IMPORTS, READ_AVRO, registry_page
from tests.support.spark.session import OVERRIDES, spark_session
from tests.support.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.peers

ANN = {"customer": "ann", "cents": 2**60 + 1, "currency": "USD"}
BOB = {"customer": "bob", "cents": 5, "currency": "EUR"}
FIRST_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "cents", "type": "int"}, {"name": "customer", "type": "string"}],
}


@pytest.fixture(scope="module")
def spark_with_avro() -> "SparkSession":
    OVERRIDES["spark.jars"] = ",".join(map(str, spark_avro_jars()))
    return spark_session()


@pytest.fixture
def topics(spark_broker: testing.Broker) -> Iterator[Topics]:
    made = Topics(spark_broker.bootstrap_servers)
    yield made
    made.close()


def test_each_record_is_read_with_its_own_schema(
    spark_with_avro: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    names: dict[str, Any] = {"spark": spark_with_avro}
    value = SerializationContext("orders", MessageField.VALUE)
    with registry_page(tmp_path, topics) as page:
        schema = page.module("order_records").SCHEMA
        with SchemaRegistryClient({"url": page.registry.url}) as client:
            old = AvroSerializer(client, json.dumps(FIRST_SCHEMA))(BOB, value)
            new = AvroSerializer(client, schema)(ANN, value)
        page.put("orders", [old, new, None])
        for code in (READ_AVRO, IMPORTS, FROM_AVRO):
            page.run(code, "orders", names)
        rows = names["orders"].sort("key").collect()
        assert [row.order and row.order.asDict() for row in rows] == [BOB, ANN, None]

        topics.put("orders", [(b"3", b"\0\0\0\1\0" + new[5:])])
        for code in (READ_AVRO, FROM_AVRO):
            page.run(code, "orders", names)
        with pytest.raises(PySparkException, match="unknown schema id 256"):
            names["orders"].collect()
