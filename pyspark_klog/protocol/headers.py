"""Encodes and decodes frames: request headers 1 and 2, response headers 0 and 1, and a message.

A frame on the wire is a 4-byte size, a header and a message. Functions that decode take the frame
without its size; functions that encode return the whole frame with its size.

Flexible versions have two exceptions (KIP-511). The client id is never compact, so that any broker
can read the header of any request. An ApiVersions response always has header 0, so that a client
can read the response of a broker that does not know the version of the request.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Mapping
from typing import NamedTuple

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol import registry
from pyspark_klog.protocol.codec import decode_message, encode_in_steps, encode_into
from pyspark_klog.protocol.errors import MalformedRequest, UnencodableMessage
from pyspark_klog.protocol.fields import FileRegion
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import NO_TAGS, Request, Response
from pyspark_klog.protocol.wire import (
    Buffer,
    SegmentedBuffer,
    put_tags,
    raise_bad_count,
    raise_bad_length,
    raise_too_many_elements,
    read_uvarint,
)

_SIZE = struct.Struct(">i")
_ERROR = struct.Struct(">h")
_REQUEST = struct.Struct(">hhih")
"""The fixed-size fields at the start of a request header: API key, API version, correlation id and
the length of the client id that follows."""
assert _REQUEST.size == 10

NO_CLIENT_ID_LENGTH = -1

_NEVER = 1 << 15
"""The cached first flexible version of an API that has none: a number above all int16 versions."""

# The first flexible version by API key, cached because most headers need it.
_first_flexible_versions: dict[int, int] = {}

MAX_HEADER_TAGS = 1000
"""Largest number of tagged fields that a decoded header may have; Kafka defines none so far."""


class RequestHeader(NamedTuple):
    """The header of a request. ``api_key`` may be the key of an API that klog does not know."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None
    unknown_tagged_fields: Mapping[int, bytes] = NO_TAGS


def request_header_version(api_key: int, api_version: int) -> int:
    """Return the version of a request's header: 2 for flexible API versions, else 1.

    API versions that are newer than klog are allowed. For an unknown API the result is 1: headers 1
    and 2 begin with the same four fields (API key, API version, correlation id and client id), and
    klog cannot read the rest anyway.
    """
    first = _first_flexible_versions.get(api_key)
    if first is None:
        if not registry.is_known(api_key):
            return 1
        found = registry.find_api(api_key).first_flexible_version
        first = _first_flexible_versions[api_key] = _NEVER if found is None else found
    return 2 if api_version >= first else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """Return the version of a response's header: 1 for flexible API versions, else 0.

    The header of an ApiVersions response always has version 0.
    """
    if api_key == ApiKey.API_VERSIONS:
        return 0
    return request_header_version(api_key, api_version) - 1


def decode_request_header(buffer: Buffer, position: int = 0) -> tuple[RequestHeader, int]:
    """Decode the header of a request frame; return (header, position of the message)."""
    try:
        api_key, api_version, correlation_id, length = _REQUEST.unpack_from(buffer, position)
        position += _REQUEST.size
        client_id = None
        if length >= 0:
            stop = position + length
            if stop > len(buffer):
                raise_bad_length("client_id", length, len(buffer) - position)
            client_id = str(buffer[position:stop], "utf-8")
            position = stop
        tags = NO_TAGS
        if request_header_version(api_key, api_version) == 2:
            tags, position = _decode_tags(buffer, position)
    except (IndexError, struct.error):
        raise MalformedRequest(
            f"request header: the frame's {len(buffer)} bytes end too early"
        ) from None
    except UnicodeDecodeError as error:
        raise MalformedRequest(f"request header: the client id is no UTF-8: {error}") from None
    except MalformedRequest as error:
        raise MalformedRequest(f"request header: {error}") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id, tags), position


def decode_request(buffer: Buffer) -> tuple[RequestHeader, Request]:
    """Decode a whole request frame, without its size, to (header, message)."""
    header, position = decode_request_header(buffer)
    cls = registry.request_class(header.api_key)
    message, _ = decode_message(cls, header.api_version, buffer, position)
    return header, message


def encode_request(header: RequestHeader, message: Request) -> bytes:
    """Encode the whole frame of a request, with its 4-byte size first."""
    out = bytearray(4)
    _put_request(header, message, out)
    _SIZE.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def encode_request_parts(header: RequestHeader, message: Request) -> list[Buffer | FileRegion]:
    """Encode the whole frame of a request as parts to send in order, with its size first.

    Large record sets are not copied.
    """
    out = _frame_buffer()
    _put_request(header, message, out)
    return _finish_parts(out)


def decode_response_header(
    buffer: Buffer, api_key: int, api_version: int
) -> tuple[int, Mapping[int, bytes], int]:
    """Decode the header of a response frame.

    Returns (correlation id, unknown tagged fields, position of the message).
    """
    try:
        (correlation_id,) = _SIZE.unpack_from(buffer, 0)
        tags, position = NO_TAGS, 4
        if response_header_version(api_key, api_version) == 1:
            tags, position = _decode_tags(buffer, position)
    except (IndexError, struct.error):
        raise MalformedRequest(
            f"response header: the frame's {len(buffer)} bytes end too early"
        ) from None
    except MalformedRequest as error:
        raise MalformedRequest(f"response header: {error}") from None
    return correlation_id, tags, position


def decode_response(buffer: Buffer, api_key: int, api_version: int) -> Response:
    """Decode the message of a response frame, which is passed without its size.

    An ApiVersions response with the error UNSUPPORTED_VERSION has version 0, whatever the version
    of the request (KIP-511). The caller must check the correlation id, which
    ``decode_response_header`` returns.
    """
    _, _, position = decode_response_header(buffer, api_key, api_version)
    if api_key == ApiKey.API_VERSIONS and len(buffer) >= position + _ERROR.size:
        (error_code,) = _ERROR.unpack_from(buffer, position)
        if error_code == ErrorCode.UNSUPPORTED_VERSION:
            api_version = 0
    cls = registry.response_class(api_key)
    message, _ = decode_message(cls, api_version, buffer, position)
    return message


def encode_response(correlation_id: int, message: Response, api_version: int) -> bytes:
    """Encode the whole frame of a response, with its 4-byte size first."""
    out = bytearray(4)
    _put_response(correlation_id, message, api_version, out)
    _SIZE.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def encode_response_parts(
    correlation_id: int, message: Response, api_version: int
) -> list[Buffer | FileRegion]:
    """Encode the whole frame of a response as parts to send in order, with its size first.

    Large record sets are not copied. A record set in a file is a part by itself, a `FileRegion`.
    """
    out = _frame_buffer()
    _put_response(correlation_id, message, api_version, out)
    return _finish_parts(out)


def encode_response_in_steps(
    correlation_id: int, message: Response, api_version: int
) -> Generator[None, None, list[Buffer | FileRegion]]:
    """Encode a response as parts to send, like ``encode_response_parts``, but yield after each
    array element that is not a number, so that the caller can do other work in between."""
    out = _frame_buffer()
    _put_response_header(correlation_id, message, api_version, out)
    yield from encode_in_steps(message, api_version, out)
    return _finish_parts(out)


def _frame_buffer() -> SegmentedBuffer:
    out = SegmentedBuffer()
    out += b"\0\0\0\0"
    return out


def _finish_parts(out: SegmentedBuffer) -> list[Buffer | FileRegion]:
    _SIZE.pack_into(out, 0, out.total_bytes() - 4)
    return out.segments()


def _put_request(header: RequestHeader, message: Request, out: bytearray) -> None:
    client_id = b"" if header.client_id is None else header.client_id.encode()
    length = NO_CLIENT_ID_LENGTH if header.client_id is None else len(client_id)
    if header.api_key != message.api_key:
        raise UnencodableMessage(
            f"request header: found API key {header.api_key}, not that of {type(message).__name__}"
        )
    try:
        out += _REQUEST.pack(header.api_key, header.api_version, header.correlation_id, length)
    except struct.error as error:
        raise UnencodableMessage(f"request header: {error}, found {header}") from error
    out += client_id
    if message.is_flexible(header.api_version):
        put_tags(out, {}, header.unknown_tagged_fields)
    encode_into(message, header.api_version, out)


def _put_response(correlation_id: int, message: Response, api_version: int, out: bytearray) -> None:
    _put_response_header(correlation_id, message, api_version, out)
    encode_into(message, api_version, out)


def _put_response_header(
    correlation_id: int, message: Response, api_version: int, out: bytearray
) -> None:
    out += _SIZE.pack(correlation_id)
    if response_header_version(message.api_key, api_version) == 1:
        out.append(0)


def _decode_tags(buffer: Buffer, position: int) -> tuple[Mapping[int, bytes], int]:
    count, position = read_uvarint(buffer, position)
    if not count:
        return NO_TAGS, position
    if count * 2 > len(buffer) - position:
        raise_bad_count("tags", count, len(buffer) - position)
    if count > MAX_HEADER_TAGS:
        raise_too_many_elements(MAX_HEADER_TAGS)
    tags: dict[int, bytes] = {}
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        if size > len(buffer) - position:
            raise_bad_length("tag", size, len(buffer) - position)
        tags[tag] = bytes(buffer[position : position + size])
        position += size
    return tags, position
