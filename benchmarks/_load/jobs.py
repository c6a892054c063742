"""The jobs and measurements of a load generator: plain data, JSON on the pipe."""

import json
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID


@dataclass(frozen=True)
class Target:
    """A partition to send to or read from, and the process that serves it.

    ``other_pids`` are further processes whose CPU counts as the broker's: its followers.
    """

    host: str
    port: int
    broker_pid: int
    topic: str
    topic_id: str
    partition: int = 0
    other_pids: tuple[int, ...] = ()

    @property
    def pids(self) -> tuple[int, ...]:
        return (self.broker_pid, *self.other_pids)

    @property
    def uuid(self) -> UUID:
        return UUID(self.topic_id)


@dataclass(frozen=True)
class Messages:
    """The records of a request: keys and values of fixed sizes (0: null), equal in every batch."""

    per_request: int
    value_bytes: int = 200
    key_bytes: int = 0


@dataclass(frozen=True)
class PipelinedProduce:
    """Requests on one connection, as fast as the broker takes them.

    With a ``producer_id`` they come from an idempotent producer, with sequences from 0 on; with a
    ``transactional_id`` as well, all belong to one transaction. With acks=0 the last request uses
    acks=1: its response ends the measurement.
    """

    target: Target
    version: int
    acks: int
    requests: int
    messages: Messages
    first_offset: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    transactional_id: str | None = None
    timeout_s: float = 120.0


@dataclass(frozen=True)
class ConcurrentProduce:
    """One request outstanding on each of many connections."""

    target: Target
    version: int
    acks: int
    requests: int
    connections: int
    messages: Messages
    first_offset: int = 0
    timeout_s: float = 120.0


@dataclass(frozen=True)
class FetchAll:
    """Read a partition from ``first_offset`` to ``end_offset``, in chunks, one outstanding."""

    target: Target
    version: int
    chunk_bytes: int
    end_offset: int
    first_offset: int = 0
    check_crc: bool = False
    timeout_s: float = 120.0


@dataclass(frozen=True)
class LibrdkafkaProduce:
    """Messages through librdkafka, passed to it from a compiled loop."""

    target: Target
    count: int
    value_bytes: int
    settings: dict[str, str]
    timeout_s: float = 120.0


@dataclass(frozen=True)
class LibrdkafkaConsume:
    """Messages of ``value_bytes`` from offset 0 to ``end_offset``, through librdkafka.

    A compiled loop takes the messages from librdkafka and checks their offsets and sizes.
    """

    target: Target
    end_offset: int
    value_bytes: int
    settings: dict[str, str]
    timeout_s: float = 120.0


@dataclass(frozen=True)
class AskAgain:
    """One request outstanding on each of as many connections as there are ``frames``.

    A connection sends its own frame (hexadecimal, size included) again and again. Every response
    must equal its first one, which must be without an error.
    """

    target: Target
    api_key: int
    version: int
    frames: list[str]
    requests: int
    timeout_s: float = 120.0


@dataclass(frozen=True)
class TransactionalProducer:
    """The producer on a connection; without a ``transactional_id`` an idempotent one."""

    producer_id: int
    producer_epoch: int = 0
    transactional_id: str | None = None


@dataclass(frozen=True)
class Transactions:
    """Transactions of ``batches`` batches, one at a time on each connection.

    There are as many connections as ``producers``, and up to ``in_flight`` Produce requests of a
    transaction without a response. Connection number ``n`` writes to partition ``n`` of the
    target's topic. Idempotent producers send no EndTxn: for them a transaction is just ``batches``
    batches.
    """

    target: Target
    version: int
    producers: list[TransactionalProducer]
    transactions: int
    batches: int
    messages: Messages
    in_flight: int = 5
    timeout_s: float = 120.0


Job = (
    PipelinedProduce
    | ConcurrentProduce
    | FetchAll
    | LibrdkafkaProduce
    | LibrdkafkaConsume
    | AskAgain
    | Transactions
)

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        PipelinedProduce,
        ConcurrentProduce,
        FetchAll,
        LibrdkafkaProduce,
        LibrdkafkaConsume,
        AskAgain,
        Transactions,
    )
}


def write_job(job: Job) -> str:
    """A job as a line of JSON, without a line end."""
    return json.dumps({"kind": type(job).__name__, **asdict(job)})


def read_job(line: str) -> Job:
    """The job that write_job wrote."""
    fields = json.loads(line)
    kind = _KINDS[fields.pop("kind")]
    target = fields["target"]
    fields["target"] = Target(**{**target, "other_pids": tuple(target["other_pids"])})
    if "messages" in fields:
        fields["messages"] = Messages(**fields["messages"])
    if "producers" in fields:
        fields["producers"] = [TransactionalProducer(**each) for each in fields["producers"]]
    job: Job = kind(**fields)
    return job


@dataclass(frozen=True)
class Measured:
    """One run. ``log_bytes`` counts whole batches; CPU times are user and system time."""

    seconds: float
    generator_cpu_s: float
    broker_cpu_s: float
    requests: int
    records: int
    log_bytes: int
    p50_us: float | None = None
    p99_us: float | None = None
    transactions: int = 0
    retries: int = 0
    """How often a transaction waited for the end of the one before (a pause, then a retry)."""

    @property
    def generator_cores(self) -> float:
        """The share of its core that the generator used: near 1, the generator was the limit."""
        return self.generator_cpu_s / self.seconds

    @property
    def broker_cores(self) -> float:
        """How many cores the broker used, or all brokers if the target has several."""
        return self.broker_cpu_s / self.seconds


class LoadFailed(Exception):
    """The load did not finish; the text tells why."""
