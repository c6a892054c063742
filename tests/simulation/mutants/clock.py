"""Bugs that show when the clock is a year off."""

from dataclasses import replace
from typing import Any

from klog_broker.log.maintenance import record_removal
from tests.simulation.mutants.mutant import Mutant

_LONG_MS = 100 * 86_400_000


def _long_for_ever(original: Any) -> Any:
    def deletable(log: Any) -> Any:
        """A log without retention by time gets a long one."""
        if log.config.retention_ms < 0:
            log = log._replace(config=replace(log.config, retention_ms=_LONG_MS))
        return original(log)

    return deletable


def _age_without_sign(original: Any) -> Any:
    def deletable(log: Any) -> Any:
        """A record's distance from now counts as its age, even if its timestamp is ahead."""
        segments = [
            each._replace(
                largest_timestamp_ms=log.now_ms - abs(log.now_ms - each.largest_timestamp_ms)
            )
            for each in log.segments
        ]
        return original(log._replace(segments=segments))

    return deletable


MUTANTS = (
    Mutant("no retention is a long one", record_removal, "deletable_segments", _long_for_ever),
    Mutant("age without its sign", record_removal, "deletable_segments", _age_without_sign),
)
