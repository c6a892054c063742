"""The errors for brokers' refusals of a producer's requests, with advice for the user."""

from pyspark_klog.client.errors import DeliveryFailed, broker_error, one_line
from pyspark_klog.client.producer.batches import Batch
from pyspark_klog.errors import BrokerError, ErrorCode

_LONGEST_TEXT = 1_000
"""The most characters of a broker's message about refused records that an error repeats."""


def not_authorized(topic: str) -> BrokerError:
    """The error for a topic that the client's user may not write to."""
    return BrokerError(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        f"this user may not write to topic {topic}; it needs WRITE and DESCRIBE there",
    )


def no_identity(code: ErrorCode) -> BrokerError:
    """The error for a broker that gave no producer id."""
    what = "asking for a producer id"
    if code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return broker_error(code, what)
    return BrokerError(
        code,
        f"{what}: this user may not write idempotently; it needs WRITE on a topic or, before Kafka "
        "2.8, IDEMPOTENT_WRITE on the cluster; or set enable.idempotence=false",
    )


def records_refused(batch: Batch, code: ErrorCode, text: str | None) -> DeliveryFailed:
    """The error for a refused batch; ``text`` is the broker's reason, if it sent one."""
    count = batch.record_count
    what = f"{count} records were" if count > 1 else "a record was"
    what = f"{what} refused for {batch.partition}"
    if code is ErrorCode.MESSAGE_TOO_LARGE:
        return DeliveryFailed(
            f"a record was refused for {batch.partition}: with {len(batch.data)} bytes it is "
            "larger than the topic takes (max.message.bytes)",
            code,
        )
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return DeliveryFailed(f"{what}: {not_authorized(batch.partition.topic)}", code)
    said = one_line(text or "", _LONGEST_TEXT) or "Produce"
    return DeliveryFailed(f"{what}: {broker_error(code, said)}", code)
