"""Time zone names of Spark's sessions, as Python's time zones and in messages."""

import pytest

from pyspark_klog.spark.options.time_zones import time_text

BEFORE_1970_US = -5_000_000


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        (None, "1969-12-31 23:59:55+00:00"),
        ("UTC", "1969-12-31 23:59:55+00:00"),
        ("Z", "1969-12-31 23:59:55+00:00"),
        ("UTC+01:00", "1970-01-01 00:59:55+01:00"),
        ("GMT+8", "1970-01-01 07:59:55+08:00"),
        ("UT-1", "1969-12-31 22:59:55-01:00"),
        ("+01:00", "1970-01-01 00:59:55+01:00"),
        ("-8:00", "1969-12-31 15:59:55-08:00"),
        ("-0330", "1969-12-31 20:29:55-03:30"),
        ("+05:30:15", "1970-01-01 05:30:10+05:30:15"),
        ("+18", "1970-01-01 17:59:55+18:00"),
        ("America/Los_Angeles", "1969-12-31 15:59:55-08:00"),
    ],
)
def test_a_time_before_1970_is_shown_in_each_time_zone_of_spark(zone: str, text: str) -> None:
    assert time_text(BEFORE_1970_US, zone) == text


@pytest.mark.parametrize("zone", ["", "+19:00", "Mars/Olympus", "../etc/passwd", "UTC+", "PST"])
def test_a_time_in_an_unknown_time_zone_is_shown_in_utc(zone: str) -> None:
    assert time_text(BEFORE_1970_US, zone) == "1969-12-31 23:59:55+00:00"


def test_a_time_that_python_does_not_have_is_shown_in_microseconds() -> None:
    assert time_text(-(2**62), "GMT+8") == f"{2**62} us before 1970"
    assert time_text(2**62, "GMT+8") == f"{2**62} us after 1970"
    first_instant_us = -62_135_596_800_000_000
    assert time_text(first_instant_us, "-08:00") == f"{-first_instant_us} us before 1970"
