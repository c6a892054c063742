"""Parses the times of `klog groups reset-offsets` and of `checkpoint move`: --to-datetime and
--by-duration, as in Kafka's tool."""

import re
from datetime import UTC, datetime, timedelta

from pyspark_klog.client.clock import epoch_ms
from pyspark_klog.client.errors import SettingError

_DURATION = re.compile(
    r"([+-])?P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{0,9})?)S)?)?", re.IGNORECASE
)


def time_of_datetime(text: str) -> int:
    """Return the milliseconds since 1970 of ``YYYY-MM-DDThh:mm:ss.sss``, in UTC or with a zone.

    :raises SettingError: if the text is not a time
    """
    time_ms = read_time(text)
    if time_ms is None:
        raise SettingError(
            f"--to-datetime {text}: expected a time as 2026-01-31T23:59:59.000, in UTC, or with a "
            "zone after it, such as +02:00"
        )
    return time_ms


def read_time(text: str) -> int | None:
    """Return the milliseconds since 1970 of an ISO 8601 time, which is in UTC unless it has a zone;
    None if ``text`` is not a time."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    zoned = read if read.tzinfo is not None else read.replace(tzinfo=UTC)
    return (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def time_of_duration(text: str) -> int:
    """Return the time, in milliseconds since 1970, that was a duration ``PnDTnHnMnS`` ago.

    :raises SettingError: if the text is not a duration
    """
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()[1:]):
        raise SettingError(f"--by-duration {text}: expected a duration as P7D, PT1H30M or P1DT12H")
    sign, days, hours, minutes, seconds = match.groups()
    try:
        span = timedelta(
            *(int(days or 0), float(seconds or 0)), minutes=int(minutes or 0), hours=int(hours or 0)
        )
    except OverflowError:
        raise SettingError(f"--by-duration {text}: expected less than a billion days") from None
    return epoch_ms() - (-1 if sign == "-" else 1) * (span // timedelta(milliseconds=1))
