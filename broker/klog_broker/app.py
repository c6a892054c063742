"""The broker as a whole: creates all objects and connects them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from klog_broker.cluster.producer_ids import ProducerIds
from klog_broker.compaction.cleaner import Cleaner
from klog_broker.config import BrokerConfig
from klog_broker.coordinator_hosting.hosting import follow_leaderships
from klog_broker.coordinator_hosting.state_topics import AdvertisedAddress
from klog_broker.dispatch.authorizer import Authorizer
from klog_broker.dispatch.dispatcher import Dispatcher
from klog_broker.lifecycle.component_settings import (
    cleaner_settings,
    network_limits,
    real_network,
)
from klog_broker.lifecycle.exit_codes import CannotStart, ExitCode
from klog_broker.lifecycle.lifecycle_log import LifecycleLog
from klog_broker.lifecycle.log_opening import OpenStore, open_local_store, open_logs
from klog_broker.lifecycle.refusals import (
    disks_lost,
    refusal_of,
    refused_address,
    refused_directory,
    refused_metrics,
    stopped_while_loading,
)
from klog_broker.lifecycle.settings_in_force import SettingsInForce
from klog_broker.lifecycle.shutdown import Shutdown
from klog_broker.lifecycle.workers import make_workers
from klog_broker.log.errors import LoadingCancelled, LogDirectoryError, OutOfDescriptors
from klog_broker.log.manager.log_manager import LogManager
from klog_broker.membership.cluster_lifecycle import ClusterLifecycle, InCluster, NoCluster
from klog_broker.membership.zookeeper_sessions import OpenSession
from klog_broker.metadata.election import FoundLog
from klog_broker.metadata.errors import StoreRefused
from klog_broker.metadata.image import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    BrokerRegistration,
    MetadataImage,
)
from klog_broker.metadata.live_brokers import LiveBrokerIds
from klog_broker.metadata.role_changes import RoleChange, RoleChangeErrors
from klog_broker.metrics.requests import RequestTimes
from klog_broker.monitoring.server import MetricsServer
from klog_broker.monitoring.sources import Sources
from klog_broker.network.server import Server
from klog_broker.parts import BrokerParts
from klog_broker.produce.kernel_loading import CompileKernel, LoadKernel
from klog_broker.produce.planner import ProducePlanner
from klog_broker.produce.quiet_loading import QuietKernelLoader
from klog_broker.produce.targets import ProduceTargets
from klog_broker.produce.turn_plans import TurnPlans
from klog_broker.replication.leader import LeaderContext
from klog_broker.replication.replica_manager import ReplicaManager
from klog_broker.resources.authorizer import ALLOWS_ALL
from klog_broker.runtime.disk.files import Files, RealFiles
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.purgatory import Purgatory
from klog_broker.runtime.net.poller import Poller, default_poller
from klog_broker.runtime.net.sockets import ListeningSocket, Network
from klog_broker.runtime.system import descriptors
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.system.clock import Clock, SystemClock
from klog_broker.runtime.system.process_facts import process_facts
from klog_broker.runtime.threads.helpers import Helpers, StartUpHelpers
from klog_broker.runtime.threads.parallel_work import ParallelWork
from klog_broker.topics.adoption import AdoptingStore
from klog_broker.topics.announcements import image_changed
from pyspark_klog.errors import InvariantViolation, KlogError
from pyspark_klog.ids import BrokerId

_log = logging.getLogger("klog.app")


class _Started(NamedTuple):
    services: BrokerParts
    server: Server


class BrokerServer:
    """A broker. Clock, disk, network and so on can be replaced; the defaults are this machine's.

    Call ``start``, then ``serve_forever`` in the same thread, which returns after ``stop``. One
    process can run any number of brokers. ``load_kernel`` loads the produce kernel, compiled code
    that checks many Produce requests at once. The broker calls it when clients send many or large
    Produce requests (produce/turn_plans.py), and before it converts records to an old format
    (fetch/down_conversion.py); without it, Python code checks all requests. ``compile_kernel``
    compiles the kernel when the broker has started; the kernel is then loaded even for few
    requests: after the first Produce request, once no connection has been used for 250 ms
    (produce/quiet_loading.py). ``load_cleaner`` is called before the first log is compacted
    (compaction/loading.py). ``adopt`` adds topics to the metadata for partition folders whose topic
    is not in the metadata; without it, a standalone broker that finds such folders does not start.
    ``accept_missing`` makes a standalone broker create empty logs for partitions whose data is
    missing; without it, a standalone broker does not start then. ``authorizer`` decides what each
    client may do. ``opened_metrics_listener`` returns the socket of metrics.listener if it is open
    already, because probes were answered during the start.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        chance: Chance | None = None,
        files: Files | None = None,
        open_store: OpenStore = open_local_store,
        open_session: OpenSession | None = None,
        network: Network | None = None,
        poller: Poller | None = None,
        make_helpers: Callable[[Loop], Helpers] | None = None,
        parallel_work: ParallelWork | None = None,
        load_kernel: LoadKernel | None = None,
        adopt: bool = False,
        accept_missing: bool = False,
        compile_kernel: CompileKernel | None = None,
        load_cleaner: Callable[[Callable[[], bool]], bool] = lambda _: True,
        authorizer: Authorizer = ALLOWS_ALL,
        opened_metrics_listener: Callable[[], ListeningSocket | None] = lambda: None,
    ) -> None:
        self._settings = SettingsInForce(config)
        self.ports: dict[str, int] = {}
        """The ports by listener name; empty until the broker has opened its listeners."""
        self.metrics_port: int | None = None
        """The port of metrics.listener; None until the broker has opened it."""
        self.plans: TurnPlans | None = None
        """Collects the Produce requests of each event-loop turn for the produce kernel (compiled
        code that checks them together); None until the broker has started, or without
        ``load_kernel``."""
        self._clock = clock or SystemClock()
        self._chance = chance or Chance()
        self._files = files or RealFiles()
        self._network = network or real_network(config)
        self.loop = Loop(self._clock, poller or default_poller())
        self._workers = make_workers(self.loop, make_helpers, parallel_work)
        self._helpers = self._workers.helpers
        self._is_wanted = True
        self.cluster_lifecycle: ClusterLifecycle = NoCluster(config, open_store)
        """How the broker takes part in a cluster; `start` replaces this object if the broker joins
        a cluster."""
        self._open_session = open_session
        self._is_serving = False
        self._is_stopping = False
        self._load_kernel = load_kernel
        self._adopt = adopt
        self._accept_missing = accept_missing
        self._compile_kernel = compile_kernel
        self._load_cleaner = load_cleaner
        self._authorizer = authorizer
        self._cleaner: Cleaner | None = None
        self._metrics: MetricsServer | None = None
        self._opened_metrics_listener = opened_metrics_listener
        self._lifecycle_log = LifecycleLog(self._clock)
        self._offline: set[Path] = set()
        self._log_helpers = StartUpHelpers()
        self._exit_code = ExitCode.OK
        self._is_closed = False
        self._started: _Started | None = None

    @property
    def config(self) -> BrokerConfig:
        """The settings in force: the settings at start-up, with all later valid changes applied."""
        return self._settings.config

    @property
    def has_parts(self) -> bool:
        """Whether ``start`` has made ``services`` and ``server``."""
        return self._started is not None

    @property
    def services(self) -> BrokerParts:
        """The broker's objects, such as logs, replicas and coordinators; raises InvariantViolation
        before ``start`` has made them."""
        return self._parts.services

    @property
    def server(self) -> Server:
        """The broker's listeners and connections; raises InvariantViolation before ``start`` has
        made them."""
        return self._parts.server

    @property
    def _parts(self) -> _Started:
        if self._started is None:
            raise InvariantViolation("the broker has not started yet")
        return self._started

    # -- start of the broker ------------------------------------------------------------------

    def start(self) -> None:
        """Load the logs and open the listeners. Blocks.

        :raises CannotStart: with the reason, if the broker cannot start
        """
        try:
            self._start()
        except (OSError, KlogError) as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            if self._started is not None:
                # After a CannotStart, such as a port in use, close the logs cleanly. Any other
                # error may come from the disk or from wrong state in memory: then do not flush the
                # logs or mark them as closed, so that the next start recovers them.
                self.close(cleanly=refusal is error)
            else:
                self._release()
            if self._exit_code is ExitCode.DISKS_LOST and refusal.exit_code is ExitCode.OK:
                # The broker lost its disks during the start-up, and stopped for this reason: report
                # the lost disks, not the stop.
                refusal = self._refused_disks()
            if refusal is error:
                raise
            raise refusal from error

    def when_ready(self, then: Callable[[], None]) -> None:
        """Call ``then`` once the started broker knows the partitions of all topics.

        A standalone broker calls ``then`` immediately. A broker in a cluster calls ``then`` when
        the controller has sent all partitions, or after a time limit; if the broker must stop
        earlier, it does not call ``then``.
        """
        self.cluster_lifecycle.when_ready(self.services.known_topics, then)

    def _start(self) -> None:
        self._lifecycle_log.starting(self.config)
        try:
            if self.config.joins_cluster:
                self.cluster_lifecycle = self._part_in_cluster()
            broker_id = self.cluster_lifecycle.join(self._files, self._chance)
            self._settings.set_broker_id(broker_id)
            metadata, logs = self._load(broker_id)
        except (LogDirectoryError, StoreRefused) as error:
            self._release()
            raise refused_directory(error) from error
        except LoadingCancelled:
            self._release()
            raise stopped_while_loading() from None
        if self._exit_code is ExitCode.DISKS_LOST:
            # The broker has not registered or opened a listener yet. To clean up, it is enough to
            # release the locks of the data directories.
            logs.release_locks()
            self._release()
            raise self._refused_disks()
        self._started = started = self._make_parts(broker_id, metadata, logs)
        self._begin(started, metadata)

    def _make_parts(
        self, broker_id: BrokerId, metadata: AdoptingStore, logs: LogManager
    ) -> _Started:
        """Create all objects that serve requests; the listeners are opened later."""
        config = self.config
        purgatory = Purgatory(self.loop)
        replicas = self._host(broker_id, metadata, logs, purgatory)
        services = BrokerParts(
            config,
            broker_id,
            self.cluster_lifecycle.parts(),
            clock=self._clock,
            chance=self._chance,
            loop=self.loop,
            purgatory=purgatory,
            helpers=self._helpers,
            logs=logs,
            replicas=replicas,
            metadata=metadata,
            producer_ids=ProducerIds(metadata, prefetches=config.joins_cluster),
            prepare_kernels=self._prepare_kernels,
            authorizer=self._authorizer,
        )
        replicas.on_lead.append(services.awaited_followers.await_followers_of)
        self.cluster_lifecycle.begin_following(services)
        dispatcher = Dispatcher(
            services.requests,
            self.cluster_lifecycle.handlers(services, services.cluster_id),
            self.cluster_lifecycle.is_brokers_listener,
            None if self._authorizer is ALLOWS_ALL else self._authorizer,
        )
        logs.free_space.on_change = replicas.free_space_changed
        replicas.on_resign.append(lambda _: services.leader_holders.drop_all_leaders())
        server = Server(
            self.loop,
            self._helpers,
            self._network,
            network_limits(config),
            dispatcher.handle_frame,
            dispatcher.pipelined_apis,
            RequestTimes(dispatcher.serves),
        )
        return _Started(services, server)

    def _begin(self, started: _Started, metadata: AdoptingStore) -> None:
        """Start the metadata store, open the listeners, and begin to serve. A standalone broker
        becomes the leader of its partitions here; in a cluster, the controller assigns the roles
        later."""
        services, server = started
        deleted = [topic.name for topic in metadata.image.deleting.values()]
        if self._load_kernel is not None:
            self.plans = TurnPlans(
                server,
                self._load_kernel,
                self._make_planner,
            )
            server.use_plans(self.plans)
        self._cleaner = Cleaner(
            services.logs,
            helpers=self._workers.cleaner_helpers,
            timers=self.loop,
            clock=self._clock,
            chance=self._chance,
            settings=cleaner_settings(self.config),
            prepare=partial(self._load_cleaner, lambda: not self._is_wanted),
        )
        self._settings.set_followers(services, server, self._cleaner)
        self._lead(metadata)
        self._listen()
        follow_leaderships(services, CONSUMER_OFFSETS, services.groups)
        services.on_topic_deleted.append(services.groups.delete_topic_offsets)
        follow_leaderships(services, TRANSACTION_STATE, services.transactions)
        for name in deleted:
            services.groups.delete_topic_offsets(name)
        services.logs.start_periodic_work(self.loop)
        self._cleaner.start_checks()
        self._listen_for_scrapes(self._cleaner)
        if self.plans is not None and self._compile_kernel is not None:
            QuietKernelLoader(server, self.plans, self._compile_kernel).start_compiling()
        self.cluster_lifecycle.serve(services)
        self._lifecycle_log.serving(
            self.config, services.metadata.image, self.ports, services.advertised
        )
        self._is_serving = True
        if not self._is_wanted:
            self.loop.post(self._begin_to_stop)

    def _part_in_cluster(self) -> InCluster:
        return InCluster(
            self.config,
            self.loop,
            self._clock,
            self._chance,
            self._network,
            self._helpers,
            self._open_session,
            in_force=lambda: self.config,
            is_wanted=lambda: self._is_wanted,
            on_lost=self._on_membership_lost,
        )

    def _lead(self, metadata: AdoptingStore) -> None:
        """Start the metadata store before listeners are open. The store of a standalone broker
        makes this broker the leader of every partition; in a cluster, the controller assigns the
        roles later."""

        def on_image(image: MetadataImage, names: Sequence[str]) -> None:
            self._settings.image_changed(image)
            image_changed(self.services, image, names)
            for callback in self.services.on_image:
                callback()

        metadata.start(self.loop, self._helpers, on_image=on_image, apply=self._apply)
        metadata.elect(
            {
                log.topic_partition: FoundLog(
                    log.topic_id,
                    log.leader_epoch,
                    log.was_unclean,
                    log.log_directory.directory_id,
                )
                for log in self.services.logs.logs()
            },
            self.services.logs.directory_of,
        )
        self._log_helpers.helpers = self._helpers

    def _apply(
        self, role_changes: Sequence[RoleChange], done: Callable[[RoleChangeErrors], None]
    ) -> None:
        is_starting = self._log_helpers.helpers is None

        def applied(results: RoleChangeErrors) -> None:
            for error in results.values():
                if is_starting and isinstance(error, OutOfDescriptors):
                    raise error
            done(results)

        self.services.replicas.apply(role_changes, applied)

    def _host(
        self,
        broker_id: BrokerId,
        metadata: AdoptingStore,
        logs: LogManager,
        purgatory: Purgatory,
    ) -> ReplicaManager:
        """Create the replica manager with the loaded logs, which this broker begins to lead or
        follow later."""
        return ReplicaManager(
            broker_id,
            logs,
            settings_of=lambda name: self._settings.topic_settings(
                name, metadata.topic_configs(name)
            ),
            wake=purgatory.check_soon,
            call_soon=self.loop.call_soon,
            context=LeaderContext(
                now_ms=self.loop.now_ms,
                broker_epoch=lambda: self.services.broker_epoch(),
                live=LiveBrokerIds(lambda: metadata.image),
                max_lag_ms=self.config["replica.lag.time.max.ms"],
            ),
        )

    def _prepare_kernels(self) -> None:
        """Load the kernels (compiled code, such as that for Produce requests). A child process
        compiles them first if the cache on disk does not have them. Blocks: called in a helper
        thread."""
        if self._load_kernel is not None:
            self._load_kernel(lambda: not self._is_wanted)

    def _make_planner(self, kernel: Any) -> ProducePlanner:
        self.services.logs.use_kernels()
        return ProducePlanner(
            kernel,
            self.server.memory.arena,
            self.server.max_request_bytes,
            ProduceTargets(self.services),
            self._clock,
            self.server.requests,
            self._network.socket_calls,
        )

    def _load(self, broker_id: BrokerId) -> tuple[AdoptingStore, LogManager]:
        return open_logs(
            self.cluster_lifecycle.open_store,
            self._settings,
            broker_id,
            files=self._files,
            clock=self._clock,
            chance=self._chance,
            helpers=self._log_helpers,
            parallel_work=self._workers.parallel_work,
            adopts=self._adopt,
            accepts_missing=self._accept_missing,
            is_standalone=not self.config.joins_cluster,
            is_wanted=lambda: self._is_wanted,
            on_directory_offline=self._on_directory_offline,
        )

    def _listen(self) -> None:
        for listener in self.config.listeners:
            try:
                port = self.server.listen(listener.name, listener.host, listener.port)
            except OSError as error:
                if descriptors.is_exhausted(error):
                    raise
                self.close()
                raise refused_address(listener, error) from error
            self.ports[listener.name] = port
        endpoints = tuple(
            # If port 0 is configured, the operating system has chosen a free port; advertise its
            # number.
            each._replace(port=each.port or self.ports[each.name])
            for each in self.config.advertised_listeners
        )
        for each in endpoints:
            self.services.advertised[each.name] = AdvertisedAddress(each.host, each.port)
        self.services.metadata.register_broker(
            BrokerRegistration(self.services.broker_id, endpoints, self.config["broker.rack"])
        )

    def _listen_for_scrapes(self, cleaner: Cleaner) -> None:
        address = self.config.metrics_listener
        if address is None:
            return
        loop, now_ms = self.loop, self._clock.now_ms()
        sources = Sources(
            self.services,
            self.cluster_lifecycle,
            self.server,
            cleaner,
            process_facts,
            lambda: not (self._is_serving and self.services.known_topics.has_been_complete),
            lambda: self._is_stopping,
            loop.now_ms(),
            now_ms,
        )
        self._metrics = MetricsServer(sources)
        listening = self._opened_metrics_listener()
        try:
            if listening is None:
                listening = self._metrics.listener.listen(self._network, *address)
            else:
                self._metrics.listener.attach(listening)
            self.metrics_port = listening.address()[1]
        except OSError as error:
            if descriptors.is_exhausted(error):
                raise
            self.close()
            raise refused_metrics(*address, error) from error

    # -- serving, stopping and closing --------------------------------------------------------

    @property
    def address(self) -> tuple[str, int]:
        """The host and port of the first listener."""
        first = self.config.listeners[0]
        return first.host or "0.0.0.0", self.ports[first.name]

    def serve_forever(self) -> ExitCode:
        """Serve until ``stop``, then close everything; return the exit code."""
        failure = None
        try:
            self.loop.run()
        except Exception:
            _log.critical("the event loop failed, the broker stops: this is a bug", exc_info=True)
            self._exit_code = ExitCode.BUG
            failure = "a bug"
        if failure is not None:
            self._lifecycle_log.stopping(self.server.connection_count, failure)
        self.close(cleanly=self._exit_code is not ExitCode.BUG)
        self._lifecycle_log.stopped(self._exit_code)
        return self._exit_code

    def stop(self, reason: str = "stop() was called") -> None:
        """Make ``serve_forever`` return once accepted requests are answered, with time limits of a
        few seconds. In a cluster, other brokers first take over this broker's partitions
        (controlled shutdown), which can take longer.

        May be called from any thread or signal handler. If the broker is still starting, ``start``
        can raise CannotStart instead.
        """
        self._lifecycle_log.will_stop(reason)
        self._is_wanted = False
        if self._is_serving:
            self.loop.post(self._begin_to_stop)

    def _begin_to_stop(self) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            self._lifecycle_log.stopping(self.server.connection_count, None)
            if self._cleaner is not None:
                self._cleaner.stop()
            stopping = Shutdown(self.server, self.services, self._end_loop)
            if self._exit_code is ExitCode.OK:
                # The broker keeps serving while it leaves the cluster (controlled shutdown), so
                # that followers can fetch the records that they lack before they become leaders.
                self.cluster_lifecycle.leave(stopping.start)
            else:
                stopping.start()

    def _end_loop(self) -> None:
        self.loop.stop()

    def close(self, cleanly: bool = True) -> None:
        """Close connections, wait for the helper threads, close the logs and the metadata store.
        Blocks.

        With ``cleanly=False``, after a bug or an unexpected error at the start, the state in memory
        cannot be trusted: the logs are left as after a kill, and the next start recovers them from
        the disk.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._is_wanted = False
        self.server.close()
        for each in self.services.on_close:
            each()
        self.cluster_lifecycle.close(cleanly=cleanly)
        if self._metrics is not None:
            self._metrics.close()
        if self.plans is not None:
            self.plans.close()
        self._workers.close()
        if cleanly:
            # Handle the results that the helper threads have posted to the loop, so that the logs
            # know which flushes are done, and do not repeat them.
            self.loop.run_turn(0)
            if self._cleaner is not None:
                self._cleaner.close()
            self.services.logs.close(self._workers.parallel_work)
        else:
            self.services.logs.release_locks()
        self.services.metadata.close()
        self.loop.close()

    def _release(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self.cluster_lifecycle.close(cleanly=True)
        self._workers.close()
        self.loop.close()

    def _on_directory_offline(self, directory: Path, error: BaseException) -> None:
        _log.error("directory=%s is offline: %s", directory, error)
        self._offline.add(directory)
        if len(self._offline) == len(self.config.log_dirs):
            _log.critical("all data directories are offline, the broker stops")
            self._disks_lost("the last data directory went offline")
        elif self.config.joins_cluster:
            # If this broker kept running, the controller would keep it as the leader of the
            # partitions in this directory, which it can neither read nor write.
            _log.critical("a data directory is offline, the broker stops (it is in a cluster)")
            self._disks_lost("a data directory went offline")

    def _refused_disks(self) -> CannotStart:
        return disks_lost(self._offline, are_all=len(self._offline) == len(self.config.log_dirs))

    def _disks_lost(self, why: str) -> None:
        self._exit_code = ExitCode.DISKS_LOST
        self.stop(why)

    def _on_membership_lost(self, why: str) -> None:
        _log.critical("the broker stops: %s", why)
        self._exit_code = ExitCode.REFUSED_BY_CLUSTER
        self.stop("its number belongs to another broker now")
