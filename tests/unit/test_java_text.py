"""Numbers as Java reads them; tests/peers/test_config_values_oracle.py has Java's answers."""

import math

import pytest

from pyspark_klog.client.errors import SettingError
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.java_text import parse_double, parse_integer, trim


@pytest.mark.parametrize(
    ("text", "number"), [("1", 1), ("+1", 1), ("-007", -7), ("\uff11\u0662", 12), ("0", 0)]
)
def test_a_whole_number_has_digits_of_any_script(text: str, number: int) -> None:
    assert parse_integer(text) == number


@pytest.mark.parametrize(
    "text", ["", "+", "1_0", " 1", "1.0", "1e3", "0x1", "1L", "--1", "\U0001d7cf", "²"]
)
def test_python_numbers_that_java_does_not_have_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no whole number"):
        parse_integer(text)


def test_a_number_of_very_many_digits_takes_no_time() -> None:
    with pytest.raises(OverflowError):
        parse_integer("9" * 1_000_000)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *((" .5\x00", 0.5), ("5.", 5.0), ("0.5d", 0.5), ("1e3F", 1_000.0), ("1e400", math.inf)),
        *(("-Infinity", -math.inf), ("0x1p3", 8.0), ("0x1.dp1", 3.625), ("0x1p1d", 2.0)),
        ("-0x1p9999", -math.inf),
    ],
)
def test_doubles_have_suffixes_and_hexadecimal_digits(text: str, number: float) -> None:
    assert parse_double(text) == number


@pytest.mark.parametrize(
    "text", ["", ".", "inf", "nan", "1_0", "0x1", "1e", "0.5fd", "\xa01", "\uff11"]
)
def test_texts_that_are_no_doubles(text: str) -> None:
    with pytest.raises(ValueError, match="is no number"):
        parse_double(text)
    assert math.isnan(parse_double("NaN"))


def test_blanks_of_other_scripts_are_not_trimmed() -> None:
    assert trim("\x00\t a\x1f\n ") == "a"
    assert trim("\xa0a\u2003") == "\xa0a\u2003"


@pytest.mark.parametrize("text", ["1_000", "\xa01", "1" * 50])
def test_a_client_takes_the_numbers_that_java_takes(text: str) -> None:
    with pytest.raises(SettingError, match="expected a whole number"):
        ClientSettings({"request.timeout.ms": text})
    assert ClientSettings({"request.timeout.ms": "\x0010 "}).number("request.timeout.ms") == 10
