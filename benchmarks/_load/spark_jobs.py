"""What a Spark driver is asked to do: plain data, JSON on the pipe."""

import json
from dataclasses import asdict, dataclass
from typing import Literal

Kind = Literal["check", "batch", "stream", "keyed", "unkeyed"]


@dataclass(frozen=True)
class SparkJob:
    """One action. ``records`` are those in the topic, or, of a sink, the rows to write.

    - ``check``: read all in a batch and count it; what was found is compared with ``records``.
    - ``batch``: read all in a batch, to Spark's noop sink.
    - ``stream``: the same as a stream from the start with AvailableNow, from start to end.
    - ``keyed`` and ``unkeyed``: write rows of ``spark.range`` with 200-byte values.
    """

    kind: Kind
    bootstrap_servers: str
    topic: str
    records: int


@dataclass(frozen=True)
class SparkMeasured:
    """How long the action took, and how many records it met; of a stream also how long its
    micro-batches took, without the query's start and end."""

    seconds: float
    records: int
    triggers_s: float | None = None


def write_job(job: SparkJob) -> str:
    """A line, without its end."""
    return json.dumps(asdict(job))


def read_job(line: str) -> SparkJob:
    """What write_job wrote."""
    return SparkJob(**json.loads(line))
