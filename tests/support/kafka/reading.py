"""Reads topics by confluent_kafka, the judge of klog's Python client."""

from confluent_kafka import Consumer, Message, TopicPartition


def read_all(servers: str, topic: str, partitions: int) -> list[list[Message]]:
    """Return the records of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "judge",
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[list[Message]] = [[] for _ in range(partitions)]
    ended = 0
    while ended < partitions:
        message = consumer.poll(30)
        assert message is not None, f"{topic} could not be read within 30 s"
        if message.error():
            ended += 1
            continue
        number = message.partition()
        assert number is not None
        found[number].append(message)
    consumer.close()
    return found
