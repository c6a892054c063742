"""`ClientSetting`, a row in the tables of client settings, and `Effect`, its effect in klog."""

from enum import Enum
from typing import NamedTuple

from pyspark_klog.security.secret import Secret

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

Value = str | int | bool | Secret | None


class Effect(Enum):
    """The effect that a setting of Kafka's has in klog."""

    APPLIED = "applied"
    NONE = "accepted, without effect"
    LATER = "not supported yet"


class ClientSetting(NamedTuple):
    """One setting of the client. ``low`` and ``high`` are the inclusive bounds of a number
    setting."""

    name: str
    kind: type
    """The type of the value: str, int, bool, or Secret if the value must never be shown."""
    default: Value
    doc: str = ""
    low: int = -LONG_MAX - 1
    high: int = LONG_MAX
    choices: tuple[str, ...] = ()
    effect: Effect = Effect.APPLIED
    without: str = ""
    """The reason why klog ignores the setting (effect NONE), what to use instead of it (LATER), or
    advice for a value that is none of ``choices`` (APPLIED)."""
