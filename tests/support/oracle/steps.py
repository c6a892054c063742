"""A step (a request and its version), and a case of several steps."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark_klog.protocol.apis.create_topics import CreatableTopic
from pyspark_klog.protocol.message import Request, Struct


@dataclass
class Step:
    """A request with placeholders (`oracle/names.py`).

    ``learn`` takes from the response what each placeholder stands for. ``awaits`` says of the
    plain response whether it is final; until then the request is sent again.
    """

    request: Request
    version: int
    learn: Callable[[Any], dict[object, object]] | None = None
    awaits: Callable[[Any], bool] | None = None


@dataclass
class Case:
    """One generated request. ``setup`` precedes it; ``probes`` show its effect."""

    number: int
    request: Request
    version: int
    changes: list[str]
    topics: list[CreatableTopic] = field(default_factory=list)
    setup: list[Step] = field(default_factory=list)
    probes: list[Step] = field(default_factory=list)

    @property
    def api(self) -> str:
        """Kafka's name of the API, ``ListOffsets``."""
        return type(self.request).__name__.removesuffix("Request")

    def describe(self) -> str:
        """The whole case, for a reader."""
        lines = [f"request {self.number}: {self.api} version {self.version}"]
        lines += [f"  changed: {each}" for each in self.changes]
        lines += [f"  topic: {whole(each)}" for each in self.topics]
        lines += [f"  before: v{each.version} {whole(each.request)}" for each in self.setup]
        lines.append(f"  sent: v{self.version} {whole(self.request)}")
        lines += [f"  after: v{each.version} {whole(each.request)}" for each in self.probes]
        return "\n".join(lines)


def whole(value: Any) -> str:
    """A request with every field; long values are shown by their length."""
    if isinstance(value, Struct):
        fields = (f"{name}={whole(getattr(value, name))}" for name in type(value).__fields__)
        return f"{type(value).__name__}({', '.join(fields)})"
    if isinstance(value, list):
        return f"[{', '.join(whole(each) for each in value)}]"
    text = repr(value)
    return (
        text
        if len(text) <= 80 or not isinstance(value, str | bytes)
        else f"{text[:40]}... ({len(value)} long)"
    )
