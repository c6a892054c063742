"""The stateful operators of a query, and the moves that would make their state wrong. Pure."""

import json
from collections.abc import Iterable
from typing import NamedTuple

from pyspark_klog.checkpoint.errors import CheckpointError

_MEANINGS = {
    "stateStoreSave": "an aggregation",
    "sessionWindowStateStoreSaveExec": "an aggregation in session windows",
    "symmetricHashJoin": "a join of streams",
    "dedupe": "dropDuplicates",
    "dedupeWithinWatermark": "dropDuplicatesWithinWatermark",
    "globalLimit": "a limit",
    "flatMapGroupsWithState": "flatMapGroupsWithState",
    "applyInPandasWithState": "applyInPandasWithState",
    "transformWithStateExec": "transformWithState",
    "transformWithStateInPandasExec": "transformWithState",
    "transformWithStateInPySparkExec": "transformWithState",
}
_DEDUPLICATES = frozenset({"dedupe", "dedupeWithinWatermark"})
"""Operators that any move leaves right: records that were read before are duplicates and are
dropped, and records that were not read are no duplicates."""


class Operator(NamedTuple):
    """A stateful operator of a query."""

    number: int
    """The operator's folder below the folder state."""
    name: str
    """Spark's name of the operator; empty if the checkpoint does not have it."""

    @property
    def is_right_after_any_move(self) -> bool:
        """Whether the operator's results stay right if records are read again or skipped."""
        return self.name in _DEDUPLICATES

    def __str__(self) -> str:
        if not self.name:
            return f"operator {self.number} (unknown: its folder has no metadata)"
        meaning = _MEANINGS.get(self.name)
        return f"operator {self.number} ({self.name}{f', {meaning}' if meaning else ''})"


def parse_operator(number: int, text: str, name: str) -> Operator:
    """Parse the metadata file ``name`` of an operator, in version `v1` or `v2`.

    :raises CheckpointError: if the text is not such a file
    """
    version, _, body = text.partition("\n")
    try:
        found = json.loads(body)["operatorInfo"]["operatorName"]
    except (ValueError, KeyError, TypeError):
        found = None
    if not version.startswith("v") or not isinstance(found, str):
        raise CheckpointError(
            f"{name} begins with {text[:40]!r}; expected a version and JSON with the operator's "
            "name: the file is damaged"
        )
    return Operator(number, found)


def newest_metadata(names: Iterable[str]) -> str | None:
    """The newest of an operator's metadata files in version `v2`, whose names are a batch and a
    unique id, as in `12_66773250`; None without such a file."""
    numbered = {int(batch): name for name in names if (batch := name.partition("_")[0]).isdigit()}
    return numbered[max(numbered)] if numbered else None
