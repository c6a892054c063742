"""Spark's time zone names in Python, and times as text for messages. Pure.

``spark.sql.session.timeZone`` accepts each name that Java's ZoneId.of accepts. Python's zoneinfo,
pytz and pyarrow know at most region names and ``+01:00``, and raise an error for ``UTC+01:00``.
"""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<hours>\d{1,2})"
    r"(?::?(?P<minutes>\d{1,2})(?::?(?P<seconds>\d{2}))?)?"
)
_MOST_HOURS = 18
"""The hours of Java's largest offset from UTC."""


@lru_cache(maxsize=64)
def time_zone(name: str | None) -> tzinfo:
    """The time zone of a Spark session's or an Arrow column's zone name.

    Returns UTC for None and for names that this Python does not know; never raises.
    """
    found = _OFFSET.fullmatch(name or "")
    if found is not None:
        hours, minutes, seconds = (
            int(found[part] or 0) for part in ("hours", "minutes", "seconds")
        )
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if offset <= timedelta(hours=_MOST_HOURS):
            return timezone(-offset if found["sign"] == "-" else offset)
    elif name and name not in ("UTC", "GMT", "UT", "Z"):
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            return UTC
    return UTC


def time_text(microseconds: int, zone: str | None = None) -> str:
    """A time, given in microseconds since 1970, as text in a zone: ``1969-12-31 23:00:00-01:00``.

    Times in years that Spark has and Python's datetime lacks are shown in microseconds.
    """
    try:
        return str((_EPOCH + timedelta(microseconds=microseconds)).astimezone(time_zone(zone)))
    except (OverflowError, ValueError):
        before_or_after = "before" if microseconds < 0 else "after"
        return f"{abs(microseconds)} us {before_or_after} 1970"
