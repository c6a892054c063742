"""The requests that a producer sends before it can write: for a producer id with its epoch, and for
the number of a topic's partitions."""

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import TopicMissing, broker_error, error_code
from pyspark_klog.client.producer.batches import NO_IDENTITY, Identity
from pyspark_klog.client.producer.refusals import no_identity, not_authorized
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pyspark_klog.protocol.keys import ApiKey


def request_producer_id(client: BlockingClient, timeout_ms: int) -> Identity:
    """A new producer id and epoch; NO_IDENTITY if the broker is older than Kafka 0.11.

    :raises BrokerError: if the client's user may not write idempotently, or for another error code
        that is not retriable
    :raises TimedOut: if no broker gave a producer id in time
    """
    deadline_ms = client.now_ms() + timeout_ms

    def attempt() -> Identity:
        link = client.link_to_any(deadline_ms)
        versions = link.connection.versions
        if versions is None or versions.newest(ApiKey.INIT_PRODUCER_ID) is None:
            return NO_IDENTITY
        response = client.call(
            link,
            InitProducerIdResponse,
            lambda _: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0),
        )
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            raise no_identity(code)
        return Identity(response.producer_id, response.producer_epoch)

    return client.run_with_retries(attempt, deadline_ms, "asking for a producer id")


def wait_for_topic(client: BlockingClient, topic: str) -> int:
    """Wait for a topic to exist and return its number of partitions. The request may create the
    topic, as with Kafka's producer.

    :raises TopicMissing: if the topic is still unknown after max.block.ms
    :raises BrokerError: if the client's user may not write to the topic, or for another error code
        that is not retriable
    :raises TimedOut: if no broker answered within max.block.ms
    """
    max_block_ms = client.settings.number("max.block.ms")
    deadline_ms = client.now_ms() + max_block_ms
    failures = 0
    trouble = client.retries.failures_of(f"asking for topic {topic}", "max.block.ms")
    while True:
        with client.retries.attribute_to(trouble, lambda: deadline_ms):
            info = client.refresh([topic], deadline_ms, may_create=True).topics[topic]
        if info.error is ErrorCode.NONE and info.partitions:
            client.retries.on_success(trouble)
            return len(info.partitions)
        if info.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise not_authorized(topic)
        if not info.error.retriable and info.error is not ErrorCode.NONE:
            raise broker_error(info.error, f"topic {topic}")
        failures += 1
        client.mark_doubtful()
        wait_ms = client.wait_ms(failures)
        if client.now_ms() + wait_ms >= deadline_ms:
            raise TopicMissing(
                f"topic {topic} does not exist, or has no partitions yet, after waiting "
                f"{max_block_ms} ms (max.block.ms); create it, or let brokers do so with "
                "auto.create.topics.enable"
            )
        client.retries.on_failure(trouble, broker_error(info.error, f"topic {topic}"), deadline_ms)
        client.sleep_ms(wait_ms)
