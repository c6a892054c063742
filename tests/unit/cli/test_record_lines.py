"""Bytes to lines and lines to records, as `klog produce` reads them."""

import io
from collections.abc import Iterable
from typing import BinaryIO

import pytest

from klog_broker.cli.records.record_lines import (
    BadLine,
    LineFormat,
    Lines,
    read_lines,
    separator_bytes,
)


class Typed(io.BytesIO):
    """A stream that gives what was typed piece by piece."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        super().__init__()
        self._pieces = list(pieces)

    def read1(self, _most: int | None = -1, /) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


def pauses(_stream: BinaryIO) -> bool:
    return False


def flows(_stream: BinaryIO) -> bool:
    return True


class TestLines:
    def test_lines_come_as_they_are_typed(self) -> None:
        found = list(read_lines(Typed([b"a\nb", b"c", b"\r\n", b"\nlast"]), 100, pauses))
        assert [(each.first_line, each.lines) for each in found] == [
            (1, [b"a"]),
            (2, []),
            (2, [b"bc"]),
            (3, [b""]),
            (4, [b"last"]),
        ]
        assert all(each.pauses for each in found)
        assert sum(each.read_bytes for each in found) == 11

    def test_what_flows_comes_in_few_pieces(self) -> None:
        first, last = read_lines(Typed([b"a\n", b"b\nc", b"d\ne"]), 100, flows)
        assert (first.lines, first.pauses) == ([b"a", b"b", b"cd"], False)
        assert (last.first_line, last.lines, last.pauses) == (4, [b"e"], True)

    def test_nothing_is_no_record(self) -> None:
        assert list(read_lines(Typed([]), 100, flows)) == []
        assert [each.lines for each in read_lines(Typed([b"\n"]), 100, flows)] == [[b""]]

    def test_a_line_without_an_end_is_not_kept_for_ever(self) -> None:
        found = read_lines(Typed([b"a\n", *[b"x" * 60] * 1000]), 100, pauses)
        assert next(found).lines == [b"a"]
        with pytest.raises(BadLine, match="line 2: it is longer than 100 bytes"):
            list(found)


def read(form: LineFormat, *lines: bytes) -> tuple[object, ...]:
    rows = form.rows(Lines(7, list(lines), 0, pauses=True))
    assert rows.bad_line is None
    return rows.keys, rows.values, rows.headers, rows.partitions, rows.timestamps_ms


def refused(form: LineFormat, line: bytes) -> str:
    """Why, behind a line that is right."""
    right = b"{}" if form.as_json else b"\tk=v"
    rows = form.rows(Lines(7, [right, line, right], 0, pauses=True))
    assert len(rows.values) == 1
    text = str(rows.bad_line)
    assert text.startswith("line 8: ")
    return text.removeprefix("line 8: ")


class TestFields:
    def test_values_only(self) -> None:
        assert read(LineFormat(), b"a\tb", b"") == (None, [b"a\tb", b""], None, None, None)
        assert read(LineFormat(null_value=b""), b"a", b"")[1] == [b"a", None]

    def test_keys_and_headers(self) -> None:
        form = LineFormat(has_headers=True, key_separator=b"::", null_value=b"-")
        keys, values, headers, *_ = read(form, b"a:1,b:-,a:\tk::v::w", b"\t-::-", b"-\t::")
        assert (keys, values) == ([b"k", None, b""], [b"v::w", None, b""])
        assert headers == [[("a", b"1"), ("b", None), ("a", b"")], [], []]
        assert separator_bytes(r"\t|é") == "\t|é".encode()

    @pytest.mark.parametrize(
        "line, expected",
        [
            (b"a:1 k=v", "the line has no tab; expected headers (name:value,name:value) and a tab"),
            (b"a:1\tk", "the line has no '=' after a key (--key-separator)"),
            (b"a:1,b\tk=v", "header b'b' has no colon; expected name:value,name:value"),
            (b"\xff:1\tk=v", "a header's name is b'\\xff'; expected UTF-8"),
        ],
    )
    def test_what_is_refused(self, line: bytes, expected: str) -> None:
        form = LineFormat(has_headers=True, key_separator=b"=")
        assert refused(form, line) == expected


class TestJson:
    def test_all_of_a_record(self) -> None:
        keys, values, headers, partitions, times = read(
            LineFormat(as_json=True),
            b'{"key": "k", "value_base64": "AP8=", "partition": 3, "offset": 1, "topic": "t"}',
            b'{"value": "\\u00e9", "headers": [{"key": "h", "value_base64": "/w=="}]}',
            b'{"headers": {"n": null, "t": "x"}, "timestamp": 0, "timestamp_type": "none"}',
        )
        assert keys == [b"k", None, None]
        assert values == [b"\x00\xff", "é".encode(), None]
        assert headers == [[], [("h", b"\xff")], [("n", None), ("t", b"x")]]
        assert (partitions, times) == ([3, None, None], [None, None, 0])

    @pytest.mark.parametrize(
        "line, expected",
        [
            (b"", "the line is no JSON"),
            (b"[" * 100_000, "the line is no JSON"),
            (b"\xff", "the line is no JSON"),
            (b"[]", "the line is no JSON object; expected {"),
            (b'{"vaule": "x"}', "the line has a field 'vaule'; expected some of headers, key,"),
            (b'{"value": 5}', "value is 5; expected a text in quotes, or null"),
            (b'{"value": "x", "value_base64": ""}', "both value and value_base64 are given"),
            (b'{"key_base64": "a"}', "key_base64 is no base 64"),
            (b'{"key_base64": "a b="}', "key_base64 is no base 64"),
            (b'{"key_base64": 5}', "key_base64 is no base 64"),
            (b'{"key": "\\ud800"}', "key has half a character"),
            (b'{"partition": -1}', "partition is -1; expected a whole number, 0 to 2147483647"),
            (b'{"partition": true}', "partition is true; expected a whole number"),
            (b'{"timestamp": 1.5}', "timestamp is 1.5; expected a whole number"),
            (b'{"timestamp": 9223372036854775807}', "timestamp is 9223372036854775807; expected"),
            (b'{"headers": "h"}', "headers: expected [{"),
            (b'{"headers": [{"value": "x"}]}', "headers: expected a text as the key"),
            (b'{"headers": [{"key": "x", "v": ""}]}', "headers: expected objects of key and"),
            (b'{"headers": {"\\ud800": ""}}', "a header's name has half a character"),
        ],
    )
    def test_what_is_refused(self, line: bytes, expected: str) -> None:
        assert refused(LineFormat(as_json=True), line).startswith(expected)
