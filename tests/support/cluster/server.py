"""Starts of a whole broker on a disk in memory, without a network, thread or second process."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from klog_broker.app import BrokerServer
from klog_broker.config import BrokerConfig
from klog_broker.dispatch.authorizer import Authorizer
from klog_broker.lifecycle.log_opening import OpenStore, open_local_store
from klog_broker.log.partition_log import PartitionLog
from klog_broker.metadata.image import PartitionRegistration, Topic
from klog_broker.metadata.interface import NewTopic
from klog_broker.metadata.local import LocalStore
from klog_broker.produce.kernel_loading import LoadKernel
from klog_broker.resources.authorizer import ALLOWS_ALL
from klog_broker.runtime.disk.files import Files
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.system.chance import Chance
from pyspark_klog.ids import BrokerId, TopicId, TopicPartition
from pyspark_klog.storage.text_files import encode_partition_metadata
from tests.support.cluster.helpers import Helpers
from tests.support.log.harness import DATA, append
from tests.support.runtime.fake_network import FakeNetwork
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import MemoryFiles

T = TypeVar("T")

NOW_MS = 1_700_000_000_000
ALONE = ((BrokerId(0),),)


def make(
    files: Files,
    *,
    adopt: bool = False,
    accept_missing: bool = False,
    data: Sequence[Path] = (DATA,),
    chance: Chance | None = None,
    open_store: OpenStore = open_local_store,
    network: FakeNetwork | None = None,
    clock: ManualClock | None = None,
    make_helpers: Callable[[Loop], Helpers] = lambda _: Helpers(),
    authorizer: Authorizer = ALLOWS_ALL,
    load_kernel: LoadKernel | None = None,
    **settings: object,
) -> BrokerServer:
    """A broker that can be started. ``settings`` with underscores for dots."""
    network = network or FakeNetwork()
    # The room for an index is taken at once: in memory much of it would take long.
    overrides = {"log.index.size.max.bytes": "4096", "log.dirs": ",".join(map(str, data))}
    overrides |= {name.replace("_", "."): str(value) for name, value in settings.items()}
    return BrokerServer(
        BrokerConfig.load(None, overrides),
        clock=clock or ManualClock(NOW_MS),
        chance=chance,
        files=files,
        open_store=open_store,
        network=network,
        poller=network.poller,
        make_helpers=make_helpers,
        authorizer=authorizer,
        load_kernel=load_kernel,
        adopt=adopt,
        accept_missing=accept_missing,
    )


def start(files: Files, **options: Any) -> BrokerServer:
    """Make a broker and start it; raises CannotStart if the start fails."""
    broker = make(files, **options)
    broker.start()
    return broker


def asked(broker: BrokerServer, ask: Callable[[Callable[[T], None]], None]) -> T:
    """Return the result that ``ask`` passes to ``done`` within 1,000 turns of the broker."""
    outcomes: list[T] = []
    ask(outcomes.append)
    for _ in range(1000):
        if outcomes:
            break
        broker.loop.run_turn(0)
    return outcomes[0]


def make_topic(
    broker: BrokerServer, name: str, partitions: int = 1, topic_id: UUID | None = None
) -> TopicId:
    """A topic with a record in each partition: its name and number."""
    given = None if topic_id is None else TopicId(topic_id)
    new = NewTopic(name, ALONE * partitions, {}, given)
    (topic,) = asked(broker, lambda done: broker.services.metadata.create_topics([new], done))
    assert isinstance(topic, Topic)
    for each in topic.topic_partitions():
        append(log_of(broker, name, each.partition), now_ms=NOW_MS)
    return topic.topic_id


def know_topics(broker: BrokerServer, names: Sequence[str], partitions: int = 1) -> None:
    """Topics that are in the metadata alone: they have no logs."""
    store = broker.services.metadata
    assert isinstance(store, LocalStore)
    replicas = (broker.services.broker_id,)
    states = (PartitionRegistration(replicas, replicas, replicas[0]),) * partitions
    chance = Chance()
    store.adopt([Topic(name, TopicId(chance.uuid()), states) for name in names], after=-1)


def log_of(broker: BrokerServer, name: str, partition: int = 0) -> PartitionLog:
    log = broker.services.logs.get(TopicPartition(name, partition))
    assert log is not None
    return log


def tree(files: Files, path: Path = DATA) -> dict[Path, bytes | None]:
    """Everything under a directory: a file's bytes, None for a directory."""
    found: dict[Path, bytes | None] = {}
    for name in files.list_dir(path):
        each = path / name
        if files.is_dir(each):
            found[each] = None
            found |= tree(files, each)
        else:
            found[each] = files.read_bytes(each)
    return found


def copy_folder(source: Files, old: Path, files: MemoryFiles, new: Path) -> None:
    """Copy a partition's folder, as a user would."""
    files.make_dirs(new)
    for name in source.list_dir(old):
        files.write_atomically(new / name, source.read_bytes(old / name))


def set_id(files: MemoryFiles, folder: Path, topic_id: UUID | None) -> None:
    """Give a folder another topic's id, or none."""
    path = folder / "partition.metadata"
    if topic_id is None:
        files.remove(path)
    else:
        files.write_atomically(path, encode_partition_metadata(topic_id))
