"""Leader epochs of a broker that was closed, killed, or started with other files."""

from random import Random

import pytest

from klog_broker.app import BrokerServer
from klog_broker.lifecycle.exit_codes import CannotStart, ExitCode
from klog_broker.metadata.local import LocalStore
from klog_broker.runtime.disk.files import Files
from pyspark_klog.ids import BrokerId
from tests.support.cluster.server import log_of, make_topic, start
from tests.support.log.harness import DATA, append_in
from tests.support.runtime.memory_files import Crashed, MemoryFiles

META = DATA / "klog-metadata"


def led(broker: BrokerServer) -> list[int]:
    """Return the leader epochs of the topic's partitions; metadata and logs agree."""
    topic = broker.services.metadata.image.topics["a"]
    epochs = [state.leader_epoch for state in topic.partitions]
    assert [log_of(broker, "a", number).leader_epoch for number in range(len(epochs))] == epochs
    return [int(epoch) for epoch in epochs]


def stored(files: Files) -> list[int]:
    image = LocalStore.open(files, DATA, BrokerId(0)).image
    return [state.leader_epoch for state in image.topics["a"].partitions]


@pytest.fixture
def files() -> MemoryFiles:
    """The files of a closed broker, with a topic of two partitions."""
    files = MemoryFiles()
    broker = start(files)
    make_topic(broker, "a", 2)
    broker.close()
    return files.killed()


def test_after_it_was_closed_it_leads_on_and_writes_nothing(files: MemoryFiles) -> None:
    before = files.read_bytes(META)
    assert led(start(files)) == [0, 0]
    assert files.read_bytes(META) == before


def test_after_it_was_killed_new_epochs_begin_that_its_file_knows(files: MemoryFiles) -> None:
    broker = start(files)
    for epoch in (1, 2):
        files = files.killed()
        broker = start(files)
        assert led(broker) == stored(files) == [epoch, epoch]
        append_in(log_of(broker, "a"), epoch)
    broker.close()
    assert led(start(files.killed())) == [2, 2]


def test_epochs_that_only_the_logs_know_are_passed_over(files: MemoryFiles) -> None:
    """Releases before this one raised them in the logs alone; so does a copy of the file that is
    put back."""
    old = files.read_bytes(META)
    start(files)
    files = files.killed()
    broker = start(files)
    for number, epoch in enumerate(led(broker)):
        append_in(log_of(broker, "a", number), epoch)
    broker.close()
    files = files.killed()
    files.write_atomically(META, old)
    assert led(start(files)) == [2, 2]


@pytest.mark.parametrize("is_power_cut", [False, True], ids=["kill -9", "power cut"])
def test_a_crash_at_any_step_leaves_no_log_ahead_of_the_metadata(
    files: MemoryFiles, is_power_cut: bool
) -> None:
    start(files)
    before = files.killed()
    whole = before.killed()
    first = whole.steps
    start(whole)
    assert whole.steps - first > 5
    for step in range(first + 1, whole.steps + 1):
        files = before.killed()
        files.crash_at_step = step
        with pytest.raises(Crashed):
            start(files)
        after = files.crash(Random(step)) if is_power_cut else files.killed()
        known = stored(after)
        assert known in ([0, 0], [1, 1])
        # A log that were ahead would lift its epoch above that of the other one.
        assert led(start(after)) == [epoch + 1 for epoch in known]


def test_without_disk_space_for_the_epochs_it_does_not_start(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(files)
    files = files.killed()
    write = MemoryFiles.write_atomically

    def refuse(self: MemoryFiles, path: object, data: bytes) -> None:
        if path == META:
            raise OSError(28, "No space left on device")
        write(self, META.parent / str(path), data)

    monkeypatch.setattr(MemoryFiles, "write_atomically", refuse)
    with pytest.raises(CannotStart, match=r"cannot write .*klog-metadata") as refused:
        start(files)
    assert refused.value.exit_code is ExitCode.REFUSED_DIRECTORY
    monkeypatch.undo()
    assert led(start(files.killed())) == [1, 1]
