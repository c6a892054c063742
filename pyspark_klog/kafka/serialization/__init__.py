"""Serializers and deserializers: between Python objects and the bytes of keys and values."""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import StrEnum
from typing import Any, ClassVar

from pyspark_klog.kafka._errors import KafkaException
from pyspark_klog.kafka._headers import Headers

__all__ = [
    "Deserializer",
    "DeserializerBuilder",
    "DoubleDeserializer",
    "DoubleSerializer",
    "IntegerDeserializer",
    "IntegerSerializer",
    "MessageField",
    "SerializationContext",
    "SerializationError",
    "Serializer",
    "SerializerBuilder",
    "StringDeserializer",
    "StringSerializer",
]


class MessageField(StrEnum):
    """The part of a message that is serialized."""

    NONE = "none"
    KEY = "key"
    VALUE = "value"


class SerializationContext:
    """The topic, the part of the message and its headers, for serializers that need them."""

    def __init__(self, topic: str, field: MessageField, headers: Headers | None = None) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers


class SerializationError(KafkaException):
    """An object could not be serialized, or bytes could not be deserialized."""


class Serializer:
    """Base class of serializers."""

    __slots__: list[str] = []

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """Return the bytes of an object; None for None.

        :raises SerializationError: if the object cannot be serialized
        """
        raise NotImplementedError

    def set_cluster_id_resolver(self, resolver: Callable[[], Any]) -> None:
        """Receive a function that returns the cluster's id. The client calls this method once, when
        it is made; the function may wait for a broker, so call it only when the id is needed."""

    def close(self) -> None:
        """Release what this serializer has opened. A client closes the serializers that it has
        built."""


class Deserializer:
    """Base class of deserializers."""

    __slots__: list[str] = []

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """Return the object that the bytes stand for; None for None.

        :raises SerializationError: if the bytes cannot be deserialized
        """
        raise NotImplementedError

    def set_cluster_id_resolver(self, resolver: Callable[[], Any]) -> None:
        """Receive a function that returns the cluster's id: `Serializer.set_cluster_id_resolver`
        says when."""

    def close(self) -> None:
        """Release what this deserializer has opened. A client closes the deserializers that it has
        built."""


class SerializerBuilder:
    """Base class of builders, which make a serializer out of the client's settings."""

    __slots__: list[str] = []

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Serializer, dict[str, Any]]:
        """Return a serializer for keys or for values, and the settings that it has not used."""
        raise NotImplementedError


class DeserializerBuilder:
    """Base class of builders, which make a deserializer out of the client's settings."""

    __slots__: list[str] = []

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Deserializer, dict[str, Any]]:
        """Return a deserializer for keys or for values, and the settings that it has not used."""
        raise NotImplementedError


class _PackingSerializer(Serializer):
    """Serializes numbers in a format of `struct`."""

    _format: ClassVar[str]

    def __call__(
        self,
        obj: Any,
        ctx: SerializationContext | None = None,  # noqa: ARG002
    ) -> bytes | None:
        if obj is None:
            return None
        try:
            return struct.pack(self._format, obj)
        except struct.error as error:
            raise SerializationError(str(error)) from error


class _UnpackingDeserializer(Deserializer):
    """Deserializes numbers in a format of `struct`."""

    _format: ClassVar[str]

    def __call__(
        self,
        value: bytes | None,
        ctx: SerializationContext | None = None,  # noqa: ARG002
    ) -> Any:
        if value is None:
            return None
        try:
            return struct.unpack(self._format, value)[0]
        except struct.error as error:
            raise SerializationError(str(error)) from error


class DoubleSerializer(_PackingSerializer):
    """A float as 8 bytes (IEEE 754, big-endian)."""

    _format = ">d"


class DoubleDeserializer(_UnpackingDeserializer):
    """The float that `DoubleSerializer` has written."""

    _format = ">d"


class IntegerSerializer(_PackingSerializer):
    """An integer as 4 bytes (signed, big-endian)."""

    _format = ">i"


class IntegerDeserializer(_UnpackingDeserializer):
    """The integer that `IntegerSerializer` has written."""

    _format = ">i"


class StringSerializer(Serializer):
    """A string in an encoding of Python's."""

    __slots__ = ("codec",)

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(
        self,
        obj: str | None,
        ctx: SerializationContext | None = None,  # noqa: ARG002
    ) -> bytes | None:
        if obj is None:
            return None
        try:
            return obj.encode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error


class StringDeserializer(Deserializer):
    """The string that `StringSerializer` has written."""

    __slots__ = ("codec",)

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(
        self,
        value: bytes | None,
        ctx: SerializationContext | None = None,  # noqa: ARG002
    ) -> str | None:
        if value is None:
            return None
        try:
            return value.decode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error
