"""One client, and its producers, for each set of client settings in a Python worker process.

Spark's Python workers live on across tasks, batches and queries, one task at a time, so the
connections of a task serve the next one. A forked worker begins without clients.
"""

import gc
import os
import signal
import sys
import threading
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.spark.errors import PackageMissing

if TYPE_CHECKING:
    from pyspark_klog.client.cluster.blocking_client import BlockingClient
    from pyspark_klog.client.group_offsets import CommittedOffset
    from pyspark_klog.client.producer.producer import Producer
    from pyspark_klog.client.transactions.producer import TransactionalProducer

# Spark imports the data source in planning processes that send brokers no request, twice for each
# micro-batch of a sink: modules that talk to brokers are imported where they are used.

_clients: "dict[tuple[int, ClientSettings], BlockingClient]" = {}
_producers: "dict[tuple[int, ClientSettings], Producer]" = {}
_held: "dict[tuple[int, ClientSettings, str], ReusedProducer]" = {}
_MOST_CLIENTS = 8
_MOST_HELD = 64
"""How many producers with a transactional id a process keeps: the producer unused for longest is
dropped first. Each task of a sink has its own id, and any process may get any task."""
_frozen: set[tuple[int, bool]] = set()
_WRITES = "pyspark_klog.client.producer.producer"


def client_for(settings: ClientSettings) -> "BlockingClient":
    """This process's client with these settings; it connects when it is first used.

    A task uses one or two clients. If queries have different settings, for example new credentials
    each time, only the `_MOST_CLIENTS` clients that were used last stay open.
    """
    key = (os.getpid(), settings)
    client = _clients.pop(key, None)
    if client is None:
        from pyspark_klog.client.cluster.blocking_client import BlockingClient

        client = BlockingClient(settings)
    _clients[key] = client
    for pid, oldest in list(_clients)[:-_MOST_CLIENTS]:
        if pid == key[0]:
            drop_producer(oldest)
    return client


def producer_for(settings: ClientSettings) -> "Producer":
    """This process's producer with these settings. Call `drop_producer` after it has failed."""
    key = (os.getpid(), settings)
    client = client_for(settings)
    producer = _producers.get(key)
    if producer is None:
        from pyspark_klog.client.producer.producer import Producer

        producer = _producers[key] = Producer(client)
    return producer


@dataclass
class ReusedProducer:
    """The producer of a transactional id in this process, and the progress that it committed last.

    The progress is an offset of a consumer group, which says what an exactly-once sink has written.
    """

    producer: "TransactionalProducer"
    committed: "CommittedOffset | None" = None
    """The offset (progress row) that the producer's last transaction committed for its consumer
    group; None if the producer may have to take its transactional id again (`init_transactions`)
    before its next transaction."""
    before: "CommittedOffset | None" = None
    """The offset that the same consumer group had committed before the producer's last transaction;
    None if it had none."""


def reused_producer(settings: ClientSettings, transactional_id: str) -> ReusedProducer:
    """This process's producer for a transactional id. Call `drop_producer` after it has failed."""
    client = client_for(settings)
    key = (os.getpid(), settings, transactional_id)
    held = _held.pop(key, None)
    if held is None:
        from pyspark_klog.client.transactions.producer import TransactionalProducer

        timeout_ms = settings.number("transaction.timeout.ms")
        held = ReusedProducer(
            TransactionalProducer(client, transactional_id, transaction_timeout_ms=timeout_ms)
        )
        others = (other for known, other in _held.items() if known[:2] == key[:2])
        for other in others:
            # Only one task writes at a time, so producers can share the memory for batches.
            held.producer.memory = other.producer.memory
            break
    _held[key] = held
    for oldest in [known for known in _held if known[0] == key[0]][:-_MOST_HELD]:
        del _held[oldest]
    return held


def drop_producer(settings: ClientSettings) -> None:
    """Forget the producers and the client with these settings and close the client's connections.

    Later calls of `client_for`, `producer_for` and `reused_producer` create new objects.
    """
    key = (os.getpid(), settings)
    _producers.pop(key, None)
    for held in [known for known in _held if known[:2] == key]:
        del _held[held]
    client = _clients.pop(key, None)
    if client is not None:
        client.close()


def freeze_once() -> None:
    """Exclude the objects that are alive now from garbage collection, once in a worker.

    The worker collects after every task, which costs 40 ms each with large imports such as numba.
    Call this at the end of a task, when all modules are loaded: reference cycles of objects that
    are alive then are never freed. A worker that has only read so far loads more modules when it
    first writes: then the exclusion is done a second time.
    """
    loaded = (os.getpid(), _WRITES in sys.modules)
    if loaded not in _frozen:
        _frozen.add(loaded)
        gc.collect()
        gc.freeze()


def check_arrow() -> None:
    """Refuse to go on without pyarrow: Spark would end the planning process without a reason.

    :raises PackageMissing: if pyarrow is not installed in this Python
    """
    if not _is_installed("pyarrow"):
        raise PackageMissing(
            f"pyarrow is not installed in this Python, {sys.executable}, and Spark gives rows to "
            f"Python in its format: install it there, and on every executor, as by pip install "
            f"'pyspark-klog[arrow]', {_OTHER_PYTHON}"
        )


def check_numba(allow_slow: bool) -> None:
    """Refuse to run the kernels (numba functions) as plain Python, which is very slow, by accident.

    :raises PackageMissing: if numba is not installed and the option allowSlow is not set
    """
    if not allow_slow and not _is_installed("numba"):
        import platform

        raise PackageMissing(
            f"numba is not installed in this Python, {sys.executable} on {platform.node()}, "
            f"and klog reads and writes records with it: install it on every executor, "
            f"as by pip install pyspark-klog, {_OTHER_PYTHON}, or set option allowSlow=true, which "
            f"is orders of magnitude slower"
        )


_OTHER_PYTHON = "or let PYSPARK_PYTHON name a Python that has it"


def _is_installed(package: str) -> bool:
    from importlib.util import find_spec

    return find_spec(package) is not None


def exit_on_sigterm() -> None:
    """Make SIGTERM, with which Spark ends a stream's source process, raise SystemExit, so that
    atexit handlers and `finally` blocks run.

    Call this in a reader's methods, not in its constructor, which runs in other processes, too.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _exit)


def _exit(_signal: int, _frame: FrameType | None) -> None:
    # Spark sends SIGTERM twice: the second one must not interrupt the handlers that close the
    # connections.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)
