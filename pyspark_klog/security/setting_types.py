"""What a row of the client's settings is made of."""

from enum import Enum
from typing import NamedTuple

from pyspark_klog.security.secret import Secret

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

Value = str | int | bool | Secret | None


class Effect(Enum):
    """What klog does with a setting of Kafka's."""

    APPLIED = "applied"
    NONE = "accepted, without effect"
    LATER = "not supported yet"


class Setting(NamedTuple):
    """One setting. ``low`` and ``high`` are inclusive bounds of a number."""

    name: str
    kind: type
    """str, int, bool, or Secret for what is never shown."""
    default: Value
    doc: str = ""
    low: int = -LONG_MAX - 1
    high: int = LONG_MAX
    choices: tuple[str, ...] = ()
    effect: Effect = Effect.APPLIED
    without: str = ""
    """Why the setting has no effect, or what to do until it is supported."""
