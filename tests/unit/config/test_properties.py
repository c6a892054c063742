"""Java's .properties syntax. The expected values are what java.util.Properties reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog_broker.config.properties import escape, parse_properties, read_properties
from klog_broker.config.types import ConfigError

CASES = {
    "plain": ("a=1\nb=2\n", [("a", "1"), ("b", "2")]),
    "other separators": (
        "a:1\nb 2\nc\t=\t3\nd = : 4",
        [("a", "1"), ("b", "2"), ("c", "3"), ("d", ": 4")],
    ),
    "second separator belongs to the value": ("a==1\nb:=2", [("a", "=1"), ("b", "=2")]),
    "blanks at the end stay": ("a=1  \n", [("a", "1  ")]),
    "no value": ("a\nb=\n", [("a", ""), ("b", "")]),
    "comments and blank lines": ("# x=1\n\n  ! y=2\n a=1", [("a", "1")]),
    "a hash within a value": ("a=1 # 2", [("a", "1 # 2")]),
    "joined lines lose leading blanks": ("a=1,\\\n   2,\\\r\n\t3", [("a", "1,2,3")]),
    "two backslashes join nothing": ("a=1\\\\\nb=2", [("a", "1\\"), ("b", "2")]),
    "three backslashes join": ("a=1\\\\\\\nb=2", [("a", "1\\b=2")]),
    "a comment is not joined": ("# a\\\nb=2", [("b", "2")]),
    "a joined line is no comment": ("a=1\\\n#2", [("a", "1#2")]),
    "a blank line ends the joining": ("a=1\\\n\nb=2", [("a", "1"), ("b", "2")]),
    "a joint at the end": ("a=1\\", [("a", "1")]),
    "a joint alone": ("\\\n# c\na=1", [("a", "1")]),
    "escapes": ("a=\\t\\n\\r\\f\\q\\\\", [("a", "\t\n\r\fq\\")]),
    "unicode": ("a=\\u00e9\\ud83d\\ude00", [("a", "é😀")]),
    "escaped separators in names": ("a\\=b\\:c\\ d=1", [("a=b:c d", "1")]),
    "all line ends": ("a=1\rb=2\r\nc=3\nd=4", [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]),
    "other line ends are characters": ("a=1\x85\u20282", [("a", "1\x85\u20282")]),
}


@pytest.mark.parametrize("text, expected", CASES.values(), ids=CASES)
def test_what_java_reads(text: str, expected: list[tuple[str, str]]) -> None:
    assert [(entry.name, entry.text) for entry in parse_properties(text)] == expected


def test_an_entry_knows_its_first_line() -> None:
    entries = parse_properties("# c\na=1\\\n2\n\nb=3", file="x.properties")
    assert [(e.file, e.line) for e in entries] == [("x.properties", 2), ("x.properties", 5)]


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "\\u=1", "a=\\u\u0661\u0661\u0661\u0661"])
def test_an_incomplete_unicode_escape_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^f:2: .*four hexadecimal digits"):
        parse_properties("x=1\n" + text, file="f")


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-16"), min_size=1),
            st.text(st.characters(codec="utf-16")),
        )
    )
)
def test_what_is_escaped_is_read_back(pairs: list[tuple[str, str]]) -> None:
    text = "".join(f"{escape(k, is_name=True)}={escape(v)}\n" for k, v in pairs)
    assert text.isascii()
    assert [(entry.name, entry.text) for entry in parse_properties(text)] == pairs


@given(st.text("\\\n\r =:#u0a"))
def test_any_text_gives_entries_or_a_config_error(text: str) -> None:
    try:
        parse_properties(text)
    except ConfigError as error:
        assert "hexadecimal" in str(error)


def test_a_file_is_utf8_or_else_latin1(tmp_path) -> None:
    path = tmp_path / "x.properties"
    path.write_bytes("a=é".encode())
    assert read_properties(path)[0].text == "é"
    path.write_bytes("a=é".encode("latin-1"))
    assert read_properties(path)[0].text == "é"
    path.write_bytes(b"\xef\xbb\xbfa=1")
    assert read_properties(path)[0].name == "a"


def test_a_file_that_is_not_there_is_one_sentence(tmp_path) -> None:
    with pytest.raises(
        ConfigError, match=r"cannot read the configuration file .*nope: No such file"
    ):
        read_properties(tmp_path / "nope")
