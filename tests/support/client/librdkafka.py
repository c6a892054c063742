"""Records sent and read by librdkafka, through confluent-kafka."""

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition


def new_producer(servers: str, acks: str, client_id: str = "rdkafka") -> Producer:
    """Return a producer that turns to other brokers if a request takes a second."""
    return Producer(
        {
            "bootstrap.servers": servers,
            "acks": acks,
            "client.id": client_id,
            "socket.timeout.ms": 1_000,
        }
    )


def acknowledged_offset(producer: Producer, topic: str, value: bytes) -> int | None:
    """Send a record; return its offset once it is acknowledged."""
    reports: list[Message] = []
    producer.produce(topic, value, on_delivery=lambda _, message: reports.append(message))
    assert producer.flush(60) == 0
    [report] = reports
    assert report.error() is None
    return report.offset()


def values_of(servers: str, topic: str, count: int) -> list[bytes | None]:
    """Read partition 0, which must have exactly ``count`` records."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values = [message.value() for message in consumer.consume(count, 60)]
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0)) == (0, count)
    consumer.close()
    return values
