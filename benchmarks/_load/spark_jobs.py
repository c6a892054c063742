"""The jobs of a Spark driver: plain data, JSON on the pipe."""

import json
from dataclasses import asdict, dataclass, field
from typing import Literal

Kind = Literal[
    "check",
    "batch",
    "column",
    "counts",
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
    """One action. ``records`` are those in the topic, or, for a sink, the rows to write.

    - ``check``: read all in a batch and count it; the result is compared with ``records``.
    - ``batch``: read all in a batch, to Spark's noop sink.
    - ``column``: read the values in a batch, to Spark's noop sink.
    - ``counts``: count the records of each partition in a batch.
    - ``stream``: read all as a stream with AvailableNow, to Spark's noop sink.
    - ``keyed`` and ``unkeyed``: write rows of ``spark.range`` with 200-byte values.
    - ``copy``: read all in a batch and write it to topic ``to``.
    - ``micro_noop`` and ``micro_topic``: a stream of many micro-batches of MICRO_RECORDS each, to
      noop, and to topic ``to``.
    - ``idle``: a stream that waits for new records; some come, one by one.

    With ``table`` a batch is read from this lake table, and with ``topic`` also the topic's newer
    records; ``catalog`` has the properties of the table's catalog.

    ``options`` are further ones of the source, ``sink_options`` of the sink. With ``is_ceiling``
    the source yields ready-made Arrow batches, ``records`` rows with values of ``value_bytes``, and
    the sink is an Arrow writer that drops its rows: no source or sink in Python can be faster.
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
    table: str = ""
    catalog: dict[str, str] = field(default_factory=dict)


MICRO_RECORDS = 8
"""The records of a micro-batch: two from each of four partitions."""


@dataclass(frozen=True)
class SparkMeasured:
    """The duration of an action, its records, and its CPU and memory."""

    seconds: float
    records: int
    triggers_s: float | None = None
    """The time of a stream's micro-batches alone, without the query's start and end."""
    batch_ms: float | None = None
    """The median of many micro-batches' wall time."""
    phases_ms: dict[str, float] = field(default_factory=dict)
    """The medians of the phases of a micro-batch, as Spark's progress names them."""
    cpu_s: float = 0.0
    """CPU time during the action: the driver, its JVM and Python processes, and the broker if there
    is one."""
    jvm_cpu_s: float = 0.0
    """The JVM's part of ``cpu_s``."""
    broker_cpu_s: float = 0.0
    """The broker's part of ``cpu_s``."""
    python_peak_bytes: int = 0
    """The peak resident memory of any of Spark's Python workers."""
    driver_cpu: float | None = None
    """Cores that an idle query's driver uses: the JVM and its Python processes."""
    jvm_cpu: float | None = None
    """The JVM's part of ``driver_cpu``."""
    pick_up_ms: float | None = None
    """The longest time from sending a new record until a micro-batch includes it."""


def write_job(job: SparkJob) -> str:
    """A job as a line of JSON, without a line end."""
    return json.dumps(asdict(job))


def read_job(line: str) -> SparkJob:
    """The job that write_job wrote."""
    return SparkJob(**json.loads(line))
