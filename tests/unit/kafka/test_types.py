"""A program that passes `mypy --strict` with confluent_kafka passes with `pyspark_klog.kafka`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
from typing import Any
from {package} import KafkaError, KafkaException, Message, Producer, TopicPartition, Uuid
from {package} import OFFSET_BEGINNING
from {package}.error import ProduceError, ValueSerializationError
from {package}.serialization import IntegerDeserializer, MessageField, SerializationContext
from {package}.serialization import StringSerializer

def on_delivery(error: KafkaError | None, message: Message) -> None:
    if error is not None and error.code() == KafkaError._MSG_TIMED_OUT:
        print(error.str(), error.retriable())
    topic: str | None = message.topic()
    value: bytes | None = message.value()
    print(topic, value, message.timestamp()[1])

producer = Producer({{"bootstrap.servers": "a:1", "linger.ms": 5}})
other = Producer({{"bootstrap.servers": "a:1"}}, logger=None)
producer.produce("t", "v", key=b"k", on_delivery=on_delivery, headers={{"a": b"b"}})
context = SerializationContext("t", MessageField.VALUE)
producer.produce("t", value=StringSerializer("utf_8")("x", context), headers=[("a", "b")])
left: int = producer.flush(5.0)
count: int = producer.poll(0)
producer.purge(in_queue=True, in_flight=False)
with Producer({{"bootstrap.servers": "a:1"}}) as again:
    print(len(again))
place = TopicPartition("t", 1, OFFSET_BEGINNING, metadata="m", leader_epoch=5)
epoch: int = place.leader_epoch
number: int = place.offset
place.metadata = "x"
try:
    raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN, "x", fatal=True))
except KafkaException as e:
    inner: Any = e.args[0]
decoded = IntegerDeserializer()(b"1234")
print(int(Uuid(1, 2)), decoded, isinstance(ProduceError(KafkaError(1)), ValueSerializationError))
closed: bool = producer.close()
"""


@pytest.mark.parametrize("package", ["confluent_kafka", "pyspark_klog.kafka"])
def test_the_types_are_those_of_confluent_kafka(package: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(package=package))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", str(program)],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "Success: no issues found in 1 source file\n", done.stdout + done.stderr
