"""Every message in every version: random instances survive, in the bytes that the rows define."""

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_klog.protocol.codec import codec_of, decode_message, encode_message, generated_codec
from pyspark_klog.protocol.message import Message
from tests.support.protocol.encoded_segments import encode_segments
from tests.support.protocol.samples import (
    ALL_MESSAGES,
    ALL_VERSIONS,
    messages,
    reference_bytes,
    sample_message,
)

SETTINGS = settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize("cls", ALL_MESSAGES, ids=lambda cls: cls.__name__)
@SETTINGS
@given(data=st.data())
def test_random_messages_round_trip(cls: type[Message], data: Any) -> None:
    version = data.draw(st.integers(cls.min_version, cls.max_version))
    message = data.draw(messages(cls, version))
    encoded = encode_message(message, version)
    decoded, end = decode_message(cls, version, encoded)
    assert decoded == message
    assert end == len(encoded)
    assert encode_message(decoded, version) == encoded


def test_every_version_of_every_message_writes_what_its_rows_say() -> None:
    random = Random(3)
    for cls, version in ALL_VERSIONS:
        for _ in range(6):
            message = sample_message(cls, version, random)
            encoded = encode_message(message, version)
            expected = reference_bytes(message, version, cls.is_flexible(version))
            assert encoded == expected, (cls.__name__, version, message)
            padded = b"before" + encoded + b"behind"
            for buffer in (padded, bytearray(padded), memoryview(padded)):
                decoded, end = decode_message(cls, version, buffer, len(b"before"))
                assert decoded == message, (cls.__name__, version)
                assert end == len(b"before") + len(encoded)


def test_hand_written_codecs_agree_with_the_rows() -> None:
    random = Random(4)
    for cls, version in ALL_VERSIONS:
        if cls.api_key > 1:  # type: ignore[attr-defined]
            continue
        written, generated = codec_of(cls, version), generated_codec(cls, version)
        for _ in range(60):
            message = sample_message(cls, version, random)
            ours, theirs = bytearray(), bytearray()
            written.encode(message, ours)
            generated.encode(message, theirs)
            assert ours == theirs, (cls.__name__, version, message)
            assert written.decode(ours, 0) == generated.decode(ours, 0) == (message, len(ours))


def test_segments_together_are_the_message() -> None:
    random = Random(5)
    for cls, version in ALL_VERSIONS:
        message = sample_message(cls, version, random)
        parts = encode_segments(message, version)
        assert b"".join(bytes(part) for part in parts) == encode_message(message, version)  # type: ignore[arg-type]
