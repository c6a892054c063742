"""Names of Kafka releases in settings, such as ``2.8``, ``0.9.0.1`` or ``3.0-IV1``."""

from klog_broker.config.types import Checked, Value

_NEWEST_STEP: dict[str, int | None] = {
    **dict.fromkeys(("0.8.0", "0.8.1", "0.8.2", "0.9.0"), None),
    "0.10.0": 1,
    "0.10.1": 2,
    "0.10.2": 0,
    "0.11.0": 2,
    "1.0": 0,
    "1.1": 0,
    "2.0": 1,
    "2.1": 2,
    "2.2": 1,
    "2.3": 1,
    "2.4": 1,
    "2.5": 0,
    "2.6": 0,
    "2.7": 2,
    "2.8": 1,
    "3.0": 1,
    "3.1": 0,
    "3.2": 0,
    "3.3": 3,
    "3.4": 0,
    "3.5": 2,
    "3.6": 2,
    "3.7": 4,
    "3.8": 0,
    "3.9": 0,
}
"""The releases that Kafka 3.9.1 knows, each with its last internal version (IV); None: no IV."""
_UNRELEASED = ("4.0-IV0", "4.0-IV1")
"""Internal versions of release 4.0, which Kafka 3.9.1 knows although it does not know 4.0."""


def release_of(text: str) -> str | None:
    """Return the release that a text names: ``2.8`` for ``2.8``, ``2.8.1`` and ``2.8-IV0``.

    Returns None if Kafka 3.9.1 does not know the release or internal version. Text after the
    release's numbers and a dot is ignored, as in Kafka.
    """
    # Strip dots at the end first, because Java's split, which Kafka calls, drops empty parts there.
    segments = text.rstrip(".").split(".")
    count = 3 if text.startswith("0.") else 2
    key = text if len(segments) <= count else ".".join(segments[:count])
    release, is_step, step = key.partition("-IV")
    if not is_step:
        return release if release in _NEWEST_STEP else None
    if key in _UNRELEASED:
        return release
    newest = _NEWEST_STEP.get(release)
    is_known = newest is not None and step in map(str, range(newest + 1))
    return release if is_known else None


def _problem(value: Value) -> str | None:
    if isinstance(value, str) and release_of(value) is not None:
        return None
    return f"must be {RELEASE}"


RELEASE = Checked("a release of Kafka, as 2.8 or 3.0-IV1", _problem)
"""The bounds of a setting whose value is a Kafka release."""
