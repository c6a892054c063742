"""Cut, mutated and invented bytes: MalformedRequest, never another error, never much memory."""

import tracemalloc
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_klog.protocol.apis.fetch import FetchRequest
from pyspark_klog.protocol.apis.produce import ProduceRequest
from pyspark_klog.protocol.codec import (
    MessageCodec,
    codec_of,
    decode_message,
    encode_message,
    generated_codec,
    handwritten_codec,
)
from pyspark_klog.protocol.errors import MalformedRequest
from pyspark_klog.protocol.headers import decode_request, decode_response
from pyspark_klog.protocol.message import Message, Struct
from pyspark_klog.protocol.registry import API_KEYS, find_api
from tests.support.protocol.samples import ALL_VERSIONS, sample_message

# A list of empty lists is the worst: three bytes make a struct and two lists.
MOST_BYTES_PER_FRAME_BYTE = 80
FIXED_BYTES = 10_000

_LENGTHS = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x07")


def mutations(encoded: bytes, random: Random, count: int) -> Iterator[bytes]:
    """Damaged copies: a byte changed, a piece cut out or doubled, a huge or negative length."""
    for _ in range(count):
        damaged = bytearray(encoded)
        for _ in range(random.choice((1, 1, 2, 5))):
            where = random.randrange(len(damaged) + 1)
            kind = random.randrange(4)
            if kind == 0 and where < len(damaged):
                damaged[where] = random.choice((0, 1, 127, 128, 255, random.randrange(256)))
            elif kind == 1:
                damaged[where : where + 4] = random.choice(_LENGTHS)
            elif kind == 2:
                del damaged[where : where + random.randrange(1, 9)]
            else:
                damaged[where:where] = damaged[where : where + random.randrange(1, 9)]
        yield bytes(damaged)


def read(cls: type[Message], version: int, data: bytes) -> tuple[Message, int] | None:
    """The decoded message, None if it is refused as malformed."""
    try:
        return decode_message(cls, version, data)
    except MalformedRequest as error:
        assert str(error).startswith(f"{cls.__name__} v{version}: ")
        return None


def test_every_truncation_is_refused() -> None:
    random = Random(21)
    for cls, version in ALL_VERSIONS:
        encoded = encode_message(sample_message(cls, version, random), version)
        cuts = range(len(encoded))
        for cut in cuts if len(cuts) < 40 else sorted(random.sample(cuts, 40)):
            assert read(cls, version, encoded[:cut]) is None, (cls.__name__, version, cut)


def test_mutated_bytes_are_read_or_refused() -> None:
    random = Random(22)
    for cls, version in ALL_VERSIONS:
        encoded = encode_message(sample_message(cls, version, random), version)
        for damaged in mutations(encoded, random, 60):
            found = read(cls, version, damaged)
            if found is not None:
                assert 0 <= found[1] <= len(damaged)
                # A decoded message can be encoded: no message is decoded by halves.
                encode_message(found[0], version)


def test_hand_written_decoders_refuse_what_the_rows_refuse() -> None:
    random = Random(23)
    for cls, version in ALL_VERSIONS:
        if cls not in (ProduceRequest, FetchRequest):
            continue
        rows = generated_codec(cls, version)
        for _ in range(15):
            encoded = encode_message(sample_message(cls, version, random), version)
            for damaged in mutations(encoded, random, 15):
                expected: object
                try:
                    expected = rows.decode(damaged, 0)
                except Exception:
                    expected = None
                found = read(cls, version, damaged)
                assert found == expected, (cls.__name__, version, damaged)


@pytest.mark.parametrize("cls", [ProduceRequest, FetchRequest])
def test_usual_requests_do_not_need_the_generated_decoder(cls: type[Message]) -> None:
    def fail(*_: object) -> tuple[object, int]:
        raise AssertionError("left to the generated decoder")

    first = 9 if cls is FetchRequest else 0
    for version in range(first, cls.max_version + 1):
        message = usual_request(cls)
        encoded = encode_message(message, version)
        alone = handwritten_codec(
            cls, version, MessageCodec(fail, generated_codec(cls, version).encode)
        )
        assert alone.decode(encoded, 0) == codec_of(cls, version).decode(encoded, 0)


def usual_request(cls: type[Message]) -> Message:
    """Two topics of two partitions each, nothing special."""
    request = cls()
    (array,) = (
        (name, row)
        for name, row in cls.__fields__.items()
        if row.kind == "array" and name in ("topics", "topic_data")
    )

    def fill(struct: type[Struct], name: str) -> Struct:
        made = struct()
        for inner, row in struct.__fields__.items():
            if row.kind == "array" and row.element and row.element.struct:
                setattr(made, inner, [fill(row.element.struct, name) for _ in range(2)])
            elif inner in ("name", "topic"):
                setattr(made, inner, name)
            elif inner == "records":
                setattr(made, inner, name.encode() * 40)
        return made

    name, row = array
    assert row.element is not None and row.element.struct is not None
    setattr(request, name, [fill(row.element.struct, each) for each in ("first", "zweites-ä")])
    return request


def peak_bytes(cls: type[Message], version: int, data: bytes) -> int:
    """How much memory a decode takes at its height, beyond what was there before.

    The least of a few tries: what other threads of the process allocate meanwhile counts, too.
    """

    def once() -> int:
        tracemalloc.start()
        try:
            found = read(cls, version, data)
            peak = tracemalloc.get_traced_memory()[1]
            del found
        finally:
            tracemalloc.stop()
        return peak

    limit = MOST_BYTES_PER_FRAME_BYTE * len(data) + FIXED_BYTES
    least = once()
    for _ in range(3):
        if least <= limit:
            break
        least = min(least, once())
    return least


def swollen(cls: type[Struct], version: int, count: int) -> Iterator[Struct]:
    """For each array in a message, yield a message with ``count`` minimal elements in it."""
    for name, row in cls.__fields__.items():
        if not row.in_version(version) or row.kind != "array" or row.element is None:
            continue
        struct = row.element.struct
        if struct is not None:
            yield cls(**{name: [struct() for _ in range(count)]})
            for inner in swollen(struct, version, count):
                yield cls(**{name: [inner]})


def test_many_small_elements_take_a_bounded_multiple_of_the_frame() -> None:
    for cls, version in ALL_VERSIONS:
        if version not in (cls.max_version, cls.first_flexible_version):
            continue
        codec_of(cls, version)
        for message in swollen(cls, version, 300):
            assert isinstance(message, Message)
            encoded = encode_message(message, version)
            peak = peak_bytes(cls, version, encoded)
            limit = MOST_BYTES_PER_FRAME_BYTE * len(encoded) + FIXED_BYTES
            assert peak <= limit, (cls.__name__, version)


def test_lying_lengths_take_no_memory() -> None:
    random = Random(24)
    for cls, version in ALL_VERSIONS:
        codec_of(cls, version)
        encoded = encode_message(sample_message(cls, version, random), version)
        for _ in range(4):
            where = random.randrange(len(encoded) + 1)
            lie = random.choice(_LENGTHS)
            damaged = encoded[:where] + lie + encoded[where + len(lie) :] + bytes(50)
            peak = peak_bytes(cls, version, damaged)
            limit = MOST_BYTES_PER_FRAME_BYTE * len(damaged) + FIXED_BYTES
            assert peak <= limit, (cls.__name__, version, damaged)


@settings(max_examples=400, deadline=None)
@given(frame=st.binary(max_size=80), key=st.sampled_from(API_KEYS), data=st.data())
def test_invented_frames_are_read_or_refused(frame: bytes, key: int, data: st.DataObject) -> None:
    version = data.draw(st.integers(find_api(key).min_version, find_api(key).max_version))
    head = int(key).to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4)
    for read_it in (
        lambda: decode_request(head + frame),
        lambda: decode_response(frame, key, version),
    ):
        try:
            read_it()
        except MalformedRequest as error:
            assert str(error)
