"""Frames in a stream, with sizes that cannot be."""

import pytest

from pyspark_klog.protocol.errors import MalformedRequest
from pyspark_klog.protocol.framing import FrameSplitter, split_frames


def test_whole_frames_come_out_and_the_rest_is_held() -> None:
    splitter = FrameSplitter(100)
    assert splitter.feed(b"\0\0\0\x02ab\0\0\0\0\0\0\0\x03c") == [b"ab", b""]
    assert splitter.held_bytes == 5
    assert splitter.feed(b"d") == []
    assert splitter.feed(b"e\0\0") == [b"cde"]
    assert splitter.held_bytes == 2


def test_a_frame_of_the_largest_size_passes() -> None:
    assert FrameSplitter(3).feed(b"\0\0\0\x03abc") == [b"abc"]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (b"\0\0\0\x04", "a frame of 4 bytes, expected at most 3"),
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes, expected at most 3"),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes; a size cannot be negative"),
        (b"GET ", "a frame of 1195725856 bytes"),
    ],
)
def test_sizes_that_cannot_be_are_refused_before_the_frame_is_there(size: bytes, text: str) -> None:
    with pytest.raises(MalformedRequest, match=text):
        FrameSplitter(3).feed(size)


def test_splitting_in_place_names_positions() -> None:
    buffer = b"..\0\0\0\x02ab\0\0\0\x01c\0\0\0\x09.."
    assert split_frames(buffer, 2, len(buffer), 50) == ([(6, 8), (12, 13)], 13)
    assert split_frames(buffer, 2, 7, 50) == ([], 2)
    assert split_frames(buffer, 2, 5, 50) == ([], 2)
