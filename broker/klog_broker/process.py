"""Runs a broker in its own process: the limit of file descriptors, signals, output, exit code."""

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from klog_broker.app import BrokerServer
from klog_broker.compaction.loading import load_cleaner_kernels
from klog_broker.config import BrokerConfig
from klog_broker.lifecycle.exit_codes import CannotStart, ExitCode
from klog_broker.monitoring.start_up_probes import StartUpProbes
from klog_broker.produce.kernel_loading import compile_produce_kernel, load_produce_kernel
from klog_broker.runtime.event_loop.garbage import LongLived
from klog_broker.runtime.net.sockets import RealNetwork
from klog_broker.runtime.system import descriptors
from klog_broker.runtime.system.clock import SystemClock

if TYPE_CHECKING:
    from klog_broker.faults.channel import FaultChannel

_log = logging.getLogger("klog.process")

T = TypeVar("T")
Load = Callable[[Callable[[], bool]], T]


def _stop_when_stdin_ends(broker: BrokerServer) -> None:
    """Stop the broker at the end of stdin.

    A thread waits for the end, which works for any kind of stdin, and also during the start.
    """

    def wait() -> None:
        # Do not read sys.stdin: this thread would hold the lock of sys.stdin when the interpreter
        # ends, which is a fatal error in Python.
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        broker.stop("stdin ended")

    threading.Thread(target=wait, name="klog-stdin", daemon=True).start()


def _stop_at_signals(broker: BrokerServer) -> None:
    """Stop the broker at SIGTERM, SIGINT and SIGHUP. SIGHUP stays ignored if it is ignored
    already, because the broker was started with nohup."""
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        signal.signal(number, lambda number, _: broker.stop(signal.Signals(number).name))


def _has_descriptors() -> bool:
    """Raise the limit of file descriptors as far as possible; return whether it is sufficient."""
    count = descriptors.raise_limit()
    if count < descriptors.LEAST_DESCRIPTORS:
        sys.stderr.write(
            f"klog: this process may have {count} file descriptors, a broker needs at least"
            f" {descriptors.LEAST_DESCRIPTORS}: start it with a higher `ulimit -n`"
            f" (LimitNOFILE of a systemd unit)\n"
        )
        return False
    _log.info(
        "limits of this process: descriptors=%d (ulimit -n) connections=%d open_files=%d",
        count,
        descriptors.connection_limit(),
        descriptors.file_limit(),
    )
    return True


def _frozen_after_load(load: Load[T]) -> Load[T]:
    """Wrap ``load``, which loads compiled kernels (functions for numba), so that the loaded objects
    are excluded from garbage collection.

    The compiled kernels, and the 120,000 objects of numba, live as long as the process.
    """

    def loading(is_stopping: Callable[[], bool]) -> T:
        loaded = load(is_stopping)
        gc.freeze()
        return loaded

    return loading


def run(
    config: BrokerConfig,
    *,
    until_stdin_ends: bool = False,
    adopt: bool = False,
    accept_missing: bool = False,
    faults_descriptor: int | None = None,
) -> int:
    """Run a broker in this process until it stops, as after SIGTERM, SIGINT or SIGHUP; return the
    exit code. ``faults_descriptor`` is an inherited socket on which a test adds faults.

    Prints `klog ready on HOST:PORT` to stdout once the broker serves, or a sentence to stderr if it
    cannot start.
    """
    if not _has_descriptors():
        return ExitCode.REFUSED
    # Tests, which use `until_stdin_ends`, start hundreds of brokers: do not compile the produce
    # kernel (the compiled code for Produce requests) in advance for them.
    compile_kernel = None if until_stdin_ends else compile_produce_kernel
    probes = StartUpProbes()
    try:
        faults = _open_fault_channel(config, faults_descriptor)
        broker = BrokerServer(
            config,
            network=None if faults is None else faults.network,
            open_session=None if faults is None else faults.open_session,
            load_kernel=_frozen_after_load(load_produce_kernel),
            compile_kernel=compile_kernel,
            load_cleaner=_frozen_after_load(load_cleaner_kernels),
            adopt=adopt,
            accept_missing=accept_missing,
            opened_metrics_listener=probes.end,
        )
        _stop_at_signals(broker)
        if until_stdin_ends:
            _stop_when_stdin_ends(broker)
        # With thousands of logs, garbage collection would take a tenth of the start-up time.
        gc.disable()
        if config.metrics_listener is not None:
            # If the address cannot be opened, `start` refuses it, unless it has a graver fault to
            # name.
            with suppress(OSError):
                probes.start(RealNetwork(), SystemClock(), *config.metrics_listener)
        broker.start()
    except CannotStart as error:
        sys.stderr.write(f"klog: {error}\n")
        return error.exit_code
    finally:
        probes.close()
    if faults is not None:
        faults.serve(broker)
    broker.when_ready(lambda: _ready(broker))
    return broker.serve_forever()


def _open_fault_channel(config: BrokerConfig, descriptor: int | None) -> "FaultChannel | None":
    if descriptor is None:
        return None
    # Imported late: only a broker that a test has started needs these modules.
    from klog_broker.faults.channel import FaultChannel

    return FaultChannel(config, descriptor)


def _ready(broker: BrokerServer) -> None:
    # Most objects that exist now live as long as the process, so exclude them from garbage
    # collection.
    gc.collect()
    gc.freeze()
    gc.enable()
    replicas = broker.services.replicas
    LongLived(broker.loop, lambda: sum(1 for _ in replicas.partitions())).start_checks()
    host, port = broker.address
    sys.stdout.write(f"klog ready on {host}:{port}\n")
    sys.stdout.flush()
