"""The HTTP reader: bytes cut anywhere give the same requests, and hostile ones are refused."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from klog_broker.monitoring.http_reader import (
    MAX_HEAD_BYTES,
    BadRequest,
    HttpReader,
    HttpRequest,
)

PIECES = st.sampled_from(
    [
        *(b"GET ", b"HEAD ", b"POST ", b"/metrics", b"/", b" HTTP/1.1", b" HTTP/1.0", b" HTTP/2.0"),
        *(b"\r\n", b"\r\n\r\n", b"\n", b"\r", b"Host: a", b"host:b", b"Connection: close", b" "),
        *(b"Connection: keep-alive", b"Content-Length: 5", b"Content-Length: 0", b"\x00", b"\xff"),
        *(b"Transfer-Encoding: chunked", b"X: " + b"y" * 3000, b"?a=b", b": ", b"a" * 9000),
    ]
)
PLAIN = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
STREAMS = st.one_of(
    st.lists(PIECES, max_size=20).map(b"".join),
    st.lists(st.one_of(st.just(PLAIN), PIECES), max_size=8).map(b"".join),
    st.binary(max_size=200),
)


def read(pieces: list[bytes]) -> list[HttpRequest | BadRequest]:
    reader, found = HttpReader(), []
    for piece in pieces:
        reader.feed(piece)
        while (each := reader.next()) is not None:
            found.append(each)
    return found


@given(STREAMS, st.lists(st.integers(0, 12_000), max_size=10))
def test_where_bytes_are_cut_changes_nothing(stream: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    pieces = [stream[start:end] for start, end in itertools.pairwise(places)]
    whole = read([stream])
    assert read(pieces) == whole
    assert read([bytes([byte]) for byte in stream]) == whole
    # The reader stops behind the last request of a connection.
    assert all(isinstance(each, HttpRequest) and each.keeps_alive for each in whole[:-1])


@given(STREAMS)
def test_a_reader_holds_no_more_than_a_head(stream: bytes) -> None:
    reader = HttpReader()
    for start in range(0, len(stream), 1000):
        reader.feed(stream[start : start + 1000])
        while reader.next() is not None:
            pass
        assert len(reader._bytes) < MAX_HEAD_BYTES


@given(st.integers(0, 3 * MAX_HEAD_BYTES))
def test_a_head_has_a_longest_size(filling: int) -> None:
    start, end = b"GET / HTTP/1.1\r\nHost: a\r\nX: ", b"\r\n\r\n"
    (found,) = read([start + b"y" * filling + end])
    if len(start) + filling + len(end) <= MAX_HEAD_BYTES:
        assert found == HttpRequest(False, "/", True)
    else:
        assert isinstance(found, BadRequest) and found.status == 431
