"""What a Spark driver is asked to do: plain data, JSON on the pipe."""

import json
from dataclasses import asdict, dataclass, field
from typing import Literal

Kind = Literal[
    "check",
    "batch",
    "stream",
    "keyed",
    "unkeyed",
    "copy",
    "micro_noop",
    "micro_topic",
    "idle",
]


@dataclass(frozen=True)
class SparkJob:
    """One action. ``records`` are those in the topic, or, of a sink, the rows to write.

    - ``check``: read all in a batch and count it; what was found is compared with ``records``.
    - ``batch``: read all in a batch, to Spark's noop sink.
    - ``stream``: the same as a stream from the start with AvailableNow, from start to end.
    - ``keyed`` and ``unkeyed``: write rows of ``spark.range`` with 200-byte values.
    - ``copy``: read all in a batch and write it to topic ``to``.
    - ``micro_noop`` and ``micro_topic``: a stream of many micro-batches of MICRO_RECORDS each, to
      noop, and to topic ``to``.
    - ``idle``: a stream that waits for new records; some come, one by one.

    ``options`` are further ones of the source, ``sink_options`` of the sink. With ``is_ceiling``
    Arrow batches made beforehand stand for a topic that is read, so many rows with values of
    ``value_bytes``, and an Arrow writer that drops its rows for one that is written: no source or
    sink in Python can be faster.
    """

    kind: Kind
    bootstrap_servers: str
    topic: str
    records: int
    to: str = ""
    partitions: int = 4
    value_bytes: int = 200
    options: dict[str, str] = field(default_factory=dict)
    sink_options: dict[str, str] = field(default_factory=dict)
    is_ceiling: bool = False


MICRO_RECORDS = 8
"""Of a micro-batch: two of each of four partitions."""


@dataclass(frozen=True)
class SparkMeasured:
    """How long the action took, and how many records it met."""

    seconds: float
    records: int
    triggers_s: float | None = None
    """Of a stream: its micro-batches alone, without the query's start and end."""
    batch_ms: float | None = None
    """The median of many micro-batches' wall time."""
    phases_ms: dict[str, float] = field(default_factory=dict)
    """The same by phase, as Spark's progress names them."""
    cpu_s: float = 0.0
    """CPU time of the driver meanwhile: the JVM and its Python processes; of a side with a broker,
    that of the broker too."""
    jvm_cpu_s: float = 0.0
    """The JVM's part of it."""
    broker_cpu_s: float = 0.0
    """The broker's."""
    python_peak_bytes: int = 0
    """The most that any of Spark's Python workers ever had resident."""
    driver_cpu: float | None = None
    """Cores that an idle query's driver uses: the JVM and its Python processes."""
    jvm_cpu: float | None = None
    """The JVM's part of it."""
    pick_up_ms: float | None = None
    """The longest time from sending a new record until a micro-batch has it planned."""


def write_job(job: SparkJob) -> str:
    """A line, without its end."""
    return json.dumps(asdict(job))


def read_job(line: str) -> SparkJob:
    """What write_job wrote."""
    return SparkJob(**json.loads(line))
