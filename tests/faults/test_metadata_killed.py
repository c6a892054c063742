"""kill -9 and power cuts at every step of every write of the metadata store.

All acknowledged changes are there, and of the others at most the one that was being written.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from klog_broker.metadata.image import MetadataImage
from klog_broker.metadata.local import LocalStore
from klog_broker.runtime.disk.files import RealFiles
from pyspark_klog.ids import BrokerId
from tests.support.cluster.local_store import BlockingStore
from tests.support.runtime.memory_files import Crashed, MemoryFiles

DATA = Path("/klog/data")
ONE = BrokerId(1)
ALONE = ((ONE,),)
Facts = tuple[frozenset[str], frozenset[str], int]


def facts(image: MetadataImage, next_producer_id: int) -> Facts:
    """The state that a client can see."""
    topics = frozenset(
        f"{t.topic_id} {t.name} {len(t.partitions)} {sorted(t.configs.items())}"
        for t in image.topics.values()
    )
    return topics, frozenset(str(topic_id) for topic_id in image.deleting), next_producer_id


def changes(store: BlockingStore) -> list[Callable[[], object]]:
    """Changes of each kind, in an order in which each changes something."""

    return [
        store.register_broker,
        lambda: store.create_topic("a", ALONE * 2, {"retention.ms": "5"}),
        lambda: store.create_topic("b", ALONE, {}),
        store.allocate_producer_ids,
        lambda: store.create_partitions("a", 2, ALONE),
        lambda: store.update_topic_configs("a", lambda _: {"segment.bytes": "100"}),
        lambda: store.begin_topic_deletion(store.image.topics["b"].topic_id),
        store.finish_deletions,
        lambda: store.create_topic("b", ALONE, {}),
        store.allocate_producer_ids,
    ]


def run(files: MemoryFiles) -> list[Facts]:
    """Make all changes, until the crash if there is one; return the acknowledged states."""
    acknowledged: list[Facts] = []
    store = BlockingStore(files, DATA)
    next_producer_id = 0
    try:
        for change in changes(store):
            result = change()
            next_producer_id = getattr(result, "end", next_producer_id)
            acknowledged.append(facts(store.image, next_producer_id))
    except Crashed:
        pass
    return acknowledged


def disk() -> MemoryFiles:
    """An empty data directory."""
    files = MemoryFiles()
    files.make_dirs(DATA)
    for parent in reversed(DATA.parents):
        files.sync_dir(parent)
    return files


def steps_of_a_whole_run() -> range:
    files = disk()
    first = files.steps
    whole = run(files)
    assert len(set(whole)) == len(whole)
    assert files.steps - first > 5 * len(whole)
    return range(first + 1, files.steps + 1)


@pytest.mark.parametrize("is_power_cut", [False, True], ids=["kill -9", "power cut"])
def test_every_step_of_every_write(is_power_cut: bool) -> None:
    for step in steps_of_a_whole_run():
        for seed in range(10 if is_power_cut else 1):
            files = disk()
            files.crash_at_step = step
            acknowledged = run(files)
            after = files.crash(Random(seed)) if is_power_cut else files.killed()
            image = LocalStore.open(after, DATA, ONE).image
            found = facts(
                image, BlockingStore(after, DATA).register_broker().allocate_producer_ids().first
            )
            last = acknowledged[-1] if acknowledged else (frozenset(), frozenset(), 0)
            assert _is_last_or_next(found, last), (step, seed)


def _is_last_or_next(found: Facts, last: Facts) -> bool:
    """Whether the found state is the last acknowledged one or its successor.

    Ids are random, so the next state is recognized by its difference to the last one.
    """
    if found == last:
        return True
    topics, deleting, next_producer_id = found
    gone = last[0] - topics
    new = topics - last[0]
    if next_producer_id != last[2]:
        return next_producer_id == last[2] + 1000 and (topics, deleting) == last[:2]
    if deleting != last[1]:
        return len(deleting ^ last[1]) == 1 and len(gone) <= 1 and not new
    # One topic is new, or one has changed.
    return len(new) == 1 and len(gone) <= 1


CHILD = """
import sys
from pathlib import Path
from klog_broker.runtime.disk.files import RealFiles
from tests.support.cluster.local_store import BlockingStore
store = BlockingStore(RealFiles(), Path(sys.argv[1])).register_broker()
number = len(store.image.topics)
while True:
    number += 1
    topic = store.create_topic(f"t{number}", ((1,),), {})
    block = store.allocate_producer_ids()
    print(topic.name, topic.topic_id, block.end, flush=True)
"""


@pytest.mark.parametrize("lines", range(1, 11))
def test_a_process_that_is_killed(tmp_path: Path, lines: int) -> None:
    """Kill the process after ``lines`` acknowledgements, twice on the same file.

    Each time one topic more may be there, written and not acknowledged; it stays from then on.
    """
    known: dict[str, str] = {}
    end = 0
    for _ in range(2):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for _ in range(lines):
            name, topic_id, end_text = child.stdout.readline().split()
            assert int(end_text) >= end + 1000
            known[name], end = topic_id, int(end_text)
        child.kill()
        # Acknowledgements that it printed before it died count, too.
        for line in child.stdout.read().splitlines(keepends=True):
            if line.endswith("\n"):
                name, topic_id, end_text = line.split()
                known[name], end = topic_id, int(end_text)
        child.stdout.close()
        child.wait()
        store = LocalStore.open(RealFiles(), tmp_path, ONE)
        found = {name: str(topic.topic_id) for name, topic in store.image.topics.items()}
        assert known.items() <= found.items()
        assert len(found) <= len(known) + 1
        known = found
        end_now = BlockingStore(RealFiles(), tmp_path).allocate_producer_ids()
        assert end_now.first >= end
        end = end_now.end
