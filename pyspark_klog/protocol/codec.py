"""Encodes and decodes messages, and caches the codec of each message class and version.

Bytes that are no valid message raise `MalformedRequest`, and a value that does not fit its field
raises `UnencodableMessage`. `UnsupportedVersion` is raised for a value that would be lost, because
the version lacks its field, and for an unknown version; `decode_in_steps` and `encode_in_steps` do
not check the version.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple, TypeVar

from pyspark_klog.protocol.decoders import (
    BoundedDecoder,
    Decoder,
    StepDecoder,
    make_bounded_decoder,
    make_decoder,
    make_step_decoder,
)
from pyspark_klog.protocol.encoders import (
    Encoder,
    StepEncoder,
    make_encoder,
    make_step_encoder,
)
from pyspark_klog.protocol.errors import (
    MalformedRequest,
    ProtocolError,
    UnencodableMessage,
    UnsupportedVersion,
)
from pyspark_klog.protocol.message import Message
from pyspark_klog.protocol.misfits import describe_misfit
from pyspark_klog.protocol.wire import Buffer

M = TypeVar("M", bound=Message)

_TOO_SHORT = (IndexError, struct.error)
_UNREADABLE = (*_TOO_SHORT, UnicodeDecodeError, MalformedRequest)
_MISFITS = (struct.error, AttributeError, TypeError, ValueError, OverflowError)


class MessageCodec(NamedTuple):
    """The decoder and the encoder of a message class in one version.

    Both also raise Python's own errors (struct.error, IndexError ...), which the functions of this
    module convert.
    """

    decode: Decoder
    encode: Encoder


HandWriter = Callable[[int, MessageCodec], MessageCodec]

_codecs: dict[tuple[type[Message], int], MessageCodec] = {}
_handwritten: dict[type[Message], HandWriter] = {}
_bounded: dict[tuple[type[Message], int], BoundedDecoder] = {}
_step_decoders: dict[tuple[type[Message], int], StepDecoder] = {}
_step_encoders: dict[tuple[type[Message], int], StepEncoder] = {}


def register_handwritten_codec(cls: type[Message], write: HandWriter) -> None:
    """Register ``write(version, generated)``, which returns the class's codec for a version.

    ``generated`` is the codec that `generated_codec` returns for this version.

    The hand-written codec may pass decoding, encoding, or messages of unusual shapes on to the
    generated codec. Both codecs must give equal results for equal messages and bytes.
    """
    _handwritten[cls] = write


def handwritten_codec(cls: type[Message], version: int, generated: MessageCodec) -> MessageCodec:
    """Return the hand-written codec of a message class if one is registered, else ``generated``."""
    write = _handwritten.get(cls)
    return write(version, generated) if write else generated


def generated_codec(cls: type[Message], version: int) -> MessageCodec:
    """Generate a class's codec from its fields. Hand-written codecs are tested against it."""
    flexible = cls.is_flexible(version)
    return MessageCodec(make_decoder(cls, version, flexible), make_encoder(cls, version, flexible))


def codec_of(cls: type[Message], version: int) -> MessageCodec:
    """Return the codec of a message class in a version, generated at the first use and cached."""
    codec = _codecs.get((cls, version))
    if codec is None:
        if not cls.min_version <= version <= cls.max_version:
            raise UnsupportedVersion(
                f"{cls.__name__}: found version {version}, expected "
                f"{cls.min_version} to {cls.max_version}"
            )
        codec = handwritten_codec(cls, version, generated_codec(cls, version))
        _codecs[cls, version] = codec
    return codec


def _bounded_decoder_of(cls: type[Message], version: int) -> BoundedDecoder:
    decoder = _bounded.get((cls, version))
    if decoder is None:
        decoder = make_bounded_decoder(cls, version, cls.is_flexible(version))
        _bounded[cls, version] = decoder
    return decoder


def decode_message(
    cls: type[M],
    version: int,
    buffer: Buffer,
    position: int = 0,
    max_elements: int | None = None,
) -> tuple[M, int]:
    """Decode one message; return (message, position after it). Further bytes are ignored.

    Record sets are views of ``buffer``; all other values are copies. If the arrays and tagged
    sections of a message have more than ``max_elements`` elements together, MalformedRequest is
    raised before the elements of the array or section that exceeds the bound are created.
    """
    decode = codec_of(cls, version).decode
    try:
        message: tuple[M, int]
        if max_elements is None:
            message = decode(buffer, position)
        else:
            message = _bounded_decoder_of(cls, version)(buffer, position, max_elements)
    except _UNREADABLE as error:
        raise _malformed(cls, version, len(buffer) - position, error) from None
    return message


def decode_in_steps(
    cls: type[M], version: int, buffer: Buffer, position: int, max_elements: int
) -> Generator[None, None, tuple[M, int]]:
    """Decode one message like ``decode_message``, but yield after each array element that is not a
    number, so that the caller can do other work before it resumes the generator.

    ``buffer`` must stay unchanged until the end.
    """
    decode = _step_decoders.get((cls, version))
    if decode is None:
        decode = make_step_decoder(cls, version, cls.is_flexible(version))
        _step_decoders[cls, version] = decode
    try:
        message: tuple[M, int] = yield from decode(buffer, position, max_elements)
    except _UNREADABLE as error:
        raise _malformed(cls, version, len(buffer) - position, error) from None
    return message


def _malformed(
    cls: type[Message], version: int, size_bytes: int, error: Exception
) -> MalformedRequest:
    name = f"{cls.__name__} v{version}"
    if isinstance(error, UnicodeDecodeError):
        return MalformedRequest(f"{name}: a string is no UTF-8: {error}")
    if isinstance(error, MalformedRequest):
        return MalformedRequest(f"{name}: {error}")
    return MalformedRequest(f"{name}: its {size_bytes} bytes end too early")


def encode_into(message: Message, version: int, out: bytearray) -> None:
    """Append an encoded message to ``out``; after an error ``out`` may contain a part of it.

    If ``out`` is a `SegmentedBuffer`, large record sets are not copied into it, and a record set
    may be a `FileRegion`: a part of a file, which this function does not read.
    """
    encode = codec_of(type(message), version).encode
    try:
        encode(message, out)
    except ProtocolError:
        raise
    except _MISFITS as error:
        raise _unencodable(message, version, error) from error


def encode_in_steps(message: Message, version: int, out: bytearray) -> Iterator[None]:
    """Append an encoded message to ``out`` like ``encode_into``, but yield after each array element
    that is not a number, so that the caller can do other work before it resumes the generator.
    """
    cls = type(message)
    encode = _step_encoders.get((cls, version))
    if encode is None:
        encode = make_step_encoder(cls, version, cls.is_flexible(version))
        _step_encoders[cls, version] = encode
    try:
        yield from encode(message, out)
    except ProtocolError:
        raise
    except _MISFITS as error:
        raise _unencodable(message, version, error) from error


def _unencodable(message: Message, version: int, error: Exception) -> UnencodableMessage:
    found = describe_misfit(message, version)
    return UnencodableMessage(found or f"{type(message).__name__} v{version}: {error}")


def encode_message(message: Message, version: int) -> bytes:
    """Return an encoded message, without header and size."""
    out = bytearray()
    encode_into(message, version, out)
    return bytes(out)
