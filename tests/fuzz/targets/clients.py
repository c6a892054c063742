"""Bytes that a malicious broker sends to klog's clients: replies, streams, record sets.

The first byte of an input names its kind. A reply has its API key and version behind it, a stream
the size of the pieces in which it arrives.
"""

from random import Random

from pyspark_klog.client.transport.connection import (
    MAX_RESPONSE_BYTES,
    ClientConnectionState,
    Connection,
)
from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.codec import encode_message
from pyspark_klog.protocol.errors import MalformedRequest
from pyspark_klog.protocol.headers import decode_response
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.registry import API_KEYS, find_api
from pyspark_klog.records.arrow import COLUMN_TYPES
from pyspark_klog.records.errors import RecordsError
from tests.fuzz.corpus import batch, damaged_batch, golden_sets, old_set
from tests.fuzz.mutating import mutated
from tests.fuzz.target import BrokenPromise, Target
from tests.support.protocol.samples import sample_message
from tests.support.records.decoding import decode_to_arrow
from tests.support.records.record_sets import iterate

REPLY, STREAM, RECORDS = range(3)
_MAX_BYTES = 1 << 18
_FIXED_BYTES = 3 << 20
_MOST_BYTES_A_BYTE = 100
_COLUMNS = tuple(COLUMN_TYPES)


class Clients(Target):
    """Feeds replies, streams and record sets to the client's decoders."""

    name = "clients"

    def make(self, random: Random) -> bytes:
        kind = random.choice((REPLY, REPLY, STREAM, RECORDS, RECORDS))
        if kind == REPLY:
            key = random.choice(API_KEYS)
            cls = find_api(key).response
            version = random.randrange(cls.min_version, cls.max_version + 1)
            data = bytes(4) + encode_message(sample_message(cls, version, random), version)
            return bytes([REPLY, key, version]) + mutated(data, random)
        if kind == STREAM:
            cls = find_api(ApiKey.API_VERSIONS).response
            version = cls.max_version
            frames = b""
            for number in range(random.choice((1, 1, 2))):
                body = number.to_bytes(4, "big")
                body += encode_message(sample_message(cls, version, random), version)
                frames += len(body).to_bytes(4, "big") + body
            return bytes([STREAM, random.choice((1, 3, 4, 50, 255))]) + mutated(frames, random)
        data = b"".join(self._set(random) for _ in range(random.choice((1, 1, 2, 3))))
        if random.random() < 0.4:
            data = mutated(data, random, golden_sets())
        return bytes([RECORDS, random.randrange(4)]) + data

    def _set(self, random: Random) -> bytes:
        kind = random.randrange(4)
        if kind == 0:
            return random.choice(golden_sets())
        if kind == 1:
            return old_set(random)
        data = batch(random, sequence=random.choice((None, 0)))
        return damaged_batch(data, random) if kind == 2 else data

    def check(self, data: bytes) -> None:
        kind = data[0] % 3 if data else REPLY
        if kind == REPLY:
            self._reply(data)
        elif kind == STREAM:
            self._stream(data[1] if len(data) > 1 else 1, data[2:])
        else:
            self._records(data[1] if len(data) > 1 else 0, data[2:])

    def _reply(self, data: bytes) -> None:
        if len(data) < 3 or data[1] not in API_KEYS:
            return
        cls = find_api(ApiKey(data[1])).response
        version = data[2]
        if not cls.min_version <= version <= cls.max_version:
            return
        try:
            found = decode_response(memoryview(data)[3:], data[1], version)
        except MalformedRequest:
            return
        # A response that was decoded must be complete: it can be encoded.
        encode_message(found, version)

    def _stream(self, step: int, stream: bytes) -> None:
        connection = Connection(
            "peer", client_id="c", request_timeout_ms=1_000, max_response_bytes=MAX_RESPONSE_BYTES
        )
        connection.connected(0)
        position = 0
        while position < len(stream) and connection.state is not ClientConnectionState.CLOSED:
            room = connection.receive_buffer()
            count = min(step or 1, len(room), len(stream) - position)
            room[:count] = stream[position : position + count]
            room.release()
            position += count
            connection.received(count)
        if connection.state is ClientConnectionState.CLOSED and not isinstance(
            connection.error, KlogError
        ):
            raise BrokenPromise(f"closed, and the error is {connection.error!r}")
        connection.received(0)
        if connection.state is not ClientConnectionState.CLOSED:
            raise BrokenPromise("the other side has closed, and it is not closed")

    def _records(self, options: int, data: bytes) -> None:
        checks = bool(options & 1)
        aborted = [(1, 0), (7, 3)] if options & 2 else []
        rows = kernels = None
        try:
            found = iterate(data, allow_partial=True, check_crc=checks, max_bytes=_MAX_BYTES)
            rows = sum(1 for _ in found)
        except RecordsError:
            pass
        try:
            decoded = decode_to_arrow(
                data,
                topic="t",
                partition=0,
                columns=_COLUMNS,
                start_offset=-(1 << 63),
                aborted=aborted,
                check_crc=checks,
                max_decompressed_bytes=_MAX_BYTES,
            )
            kernels = sum(each.num_rows for each in decoded.batches)
        except KlogError as error:
            if len(str(error)) < 15:
                raise BrokenPromise(f"an error that says nothing: {error}") from error
        # Only the kernels drop repeated batches and aborted records.
        if rows is not None and kernels is not None and kernels > rows:
            raise BrokenPromise(f"{kernels} rows came of {rows} records")

    def most_bytes(self, data: bytes) -> int:
        return _FIXED_BYTES + 8 * _MAX_BYTES + _MOST_BYTES_A_BYTE * len(data)


TARGET = Clients
