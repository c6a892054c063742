"""The exceptions of `pyspark_klog.kafka`, those of serializers and deserializers included."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyspark_klog.kafka._errors import KafkaError, KafkaException
from pyspark_klog.kafka.serialization import SerializationError

if TYPE_CHECKING:
    from pyspark_klog.kafka._message import Message

__all__ = [
    "ConsumeError",
    "KafkaError",
    "KafkaException",
    "KeyDeserializationError",
    "KeySerializationError",
    "ProduceError",
    "ValueDeserializationError",
    "ValueSerializationError",
]


class _ClientError(KafkaException):
    """``exception`` is the cause, if there is one; ``kafka_message`` the message as it was read."""

    def __init__(
        self,
        kafka_error: KafkaError,
        exception: Exception | None = None,
        kafka_message: Message | None = None,
    ) -> None:
        super().__init__(kafka_error)
        self.exception = exception
        self.kafka_message = kafka_message

    @property
    def code(self) -> int:
        """The code of the `KafkaError`."""
        return cast("KafkaError", self.args[0]).code()

    @property
    def name(self) -> str:
        """The name of this code."""
        return cast("KafkaError", self.args[0]).name()


class ConsumeError(_ClientError):
    """A message could not be consumed."""


class KeyDeserializationError(ConsumeError, SerializationError):
    """The deserializer has failed at a message's key."""

    def __init__(
        self, exception: Exception | None = None, kafka_message: Message | None = None
    ) -> None:
        error = KafkaError(KafkaError._KEY_DESERIALIZATION, str(exception))
        super().__init__(error, exception, kafka_message)


class ValueDeserializationError(ConsumeError, SerializationError):
    """The deserializer has failed at a message's value."""

    def __init__(
        self, exception: Exception | None = None, kafka_message: Message | None = None
    ) -> None:
        error = KafkaError(KafkaError._VALUE_DESERIALIZATION, str(exception))
        super().__init__(error, exception, kafka_message)


class ProduceError(_ClientError):
    """A message could not be produced."""

    def __init__(self, kafka_error: KafkaError, exception: Exception | None = None) -> None:
        super().__init__(kafka_error, exception)


class KeySerializationError(ProduceError, SerializationError):
    """The serializer has failed at a message's key."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(KafkaError._KEY_SERIALIZATION, str(exception)), exception)


class ValueSerializationError(ProduceError, SerializationError):
    """The serializer has failed at a message's value."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(KafkaError._VALUE_SERIALIZATION, str(exception)), exception)
