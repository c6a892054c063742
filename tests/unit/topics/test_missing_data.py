"""A start that finds less data than klog-metadata knows is refused; other logs are created."""

import json
from collections.abc import Callable
from errno import EIO, ENOSPC
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from klog_broker.app import BrokerServer
from klog_broker.lifecycle.exit_codes import CannotStart, ExitCode
from klog_broker.metadata.errors import StoreFailed
from klog_broker.metadata.interface import NewTopic
from klog_broker.metadata.local import LocalStore
from pyspark_klog.ids import BrokerId
from pyspark_klog.records.checksums import crc32c
from pyspark_klog.storage.text_files import decode_meta_properties, encode_topic_id
from tests.support.cluster.server import (
    ALONE,
    asked,
    copy_folder,
    know_topics,
    log_of,
    make,
    make_topic,
    start,
    tree,
)
from tests.support.log.harness import append, read_all
from tests.support.runtime.memory_files import Crashed, MemoryFiles

A, B, C = Path("/a"), Path("/b"), Path("/c")
TWO = (A, B)
ID = UUID(int=0x1234567890ABCDEF1234567890ABCDEF)
RESTORE = (
    "; mount the disk, put the directory back into log.dirs, or restore the folders; if they are"
    " lost or were removed on purpose, start once with --accept-missing: partitions without a"
    " folder are then empty"
)


def written(*topics: str, data: tuple[Path, ...] = TWO, partitions: int = 4) -> MemoryFiles:
    """The disk of a broker that was stopped, with a record in each partition."""
    files = MemoryFiles()
    broker = start(files, data=data)
    for name in topics:
        make_topic(broker, name, partitions)
    broker.close()
    return files.killed()


def refusal(files: MemoryFiles, **options: Any) -> str:
    """Return the error of a refused start, which may make directories but changes nothing else."""
    before = tree(files, Path("/"))
    with pytest.raises(CannotStart) as refused:
        start(files, **{"data": TWO, **options})
    assert refused.value.exit_code is ExitCode.REFUSED_DIRECTORY
    assert not files.locks
    after = {k: v for k, v in tree(files, Path("/")).items() if k.name != ".lock"}
    assert {k: v for k, v in after.items() if k in before or v is not None} == {
        k: v for k, v in before.items() if k.name != ".lock"
    }
    return str(refused.value)


def id_of(files: MemoryFiles, directory: Path) -> str:
    meta = decode_meta_properties(files.read_bytes(directory / "meta.properties"))
    assert meta.directory_id is not None
    return encode_topic_id(meta.directory_id)


def unmount(files: MemoryFiles, directory: Path) -> None:
    """Leave an empty directory, as a mount point without its disk is."""
    files.remove_tree(directory)
    files.make_dirs(directory)
    files.sync_dir(directory.parent)


def counts(broker: BrokerServer, name: str, partitions: int = 4) -> list[int]:
    return [len(read_all(log_of(broker, name, number))) for number in range(partitions)]


def folders(files: MemoryFiles, directory: Path, name: str) -> list[str]:
    return [each for each in files.list_dir(directory) if each.startswith(f"{name}-")]


# --- data directories ----------------------------------------------------------------------------
def test_a_directory_that_is_not_mounted_refuses_the_start() -> None:
    files = written("t")
    missing = id_of(files, B)
    lost = ", ".join(sorted(folders(files, B, "t")))
    unmount(files, B)
    assert refusal(files) == (
        f"data is missing, and nothing was changed: the data directory /b has no meta.properties"
        f" with directory.id {missing} (is its disk mounted?); there is no folder of {lost},"
        f" created in /b{RESTORE}"
    )


def test_a_directory_that_is_not_mounted_refuses_the_start_without_partitions_too() -> None:
    files = written()
    unmount(files, B)
    assert f"(is its disk mounted?){RESTORE}" in refusal(files)


def test_a_directory_that_was_taken_out_of_log_dirs_refuses_the_start() -> None:
    files = written("t")
    text = refusal(files, data=(A,))
    assert f"the data directory /b (directory.id {id_of(files, B)}) is not in log.dirs; " in text


def test_another_disk_in_the_place_of_a_directory_refuses_the_start() -> None:
    files = written("t")
    expected = id_of(files, B)
    unmount(files, B)
    meta = files.read_bytes(A / "meta.properties")
    files.write_atomically(
        B / "meta.properties", meta.replace(id_of(files, A).encode(), encode_topic_id(ID).encode())
    )
    text = f"the data directory /b has directory.id {encode_topic_id(ID)} instead of {expected}; "
    assert text in refusal(files)


def test_a_directory_may_be_mounted_elsewhere() -> None:
    files = written("t")
    files.rename(B, C)
    broker = start(files, data=(A, C))
    assert counts(broker, "t") == [1] * 4
    broker.close()
    assert b'"/c"' in files.read_bytes(A / "klog-metadata")
    assert b'"/b"' not in files.read_bytes(A / "klog-metadata")


def test_a_directory_may_be_added() -> None:
    files = written("t")
    broker = start(files, data=(*TWO, C))
    assert counts(broker, "t") == [1] * 4
    make_topic(broker, "more", 5)
    broker.close()
    files = files.killed()
    unmount(files, C)
    assert "/c has no meta.properties" in refusal(files, data=(*TWO, C))


def test_the_first_directory_alone_that_is_not_mounted_refuses_the_start() -> None:
    """No folder is left that tells of it."""
    files = written("t", partitions=1)
    assert folders(files, B, "t") == []
    unmount(files, A)
    assert refusal(files) == (
        "the first data directory /a has neither meta.properties nor klog-metadata, but /b was used"
        " by this broker before: mount the disk of /a, or put both files back; if they are lost,"
        " start once with --adopt"
    )
    assert start(files, data=TWO, adopt=True).services.metadata.image.topics == {}


def test_directories_in_another_order_refuse_the_start() -> None:
    files = written()
    assert refusal(files, data=(B, A)) == (
        "/a/klog-metadata exists, but klog reads klog-metadata only from the first directory of"
        " log.dirs, /b: name /a first in log.dirs"
    )


def test_klog_metadata_restored_without_logs_refuses_the_start() -> None:
    files = written("t", data=(A,))
    kept = files.read_bytes(A / "klog-metadata")
    unmount(files, A)
    files.write_atomically(A / "klog-metadata", kept)
    text = refusal(files, data=(A,))
    assert "the data directory /a has no meta.properties with directory.id " in text
    assert "there is no folder of t-0, t-1, t-2, t-3, created in /a" in text


# --- partitions ----------------------------------------------------------------------------------
@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("leaves_folder", [False, True], ids=["no folder", "an empty folder"])
def test_a_missing_folder_refuses_the_start(is_clean: bool, leaves_folder: bool) -> None:
    files = MemoryFiles()
    broker = start(files, data=(A,))
    make_topic(broker, "t", 3)
    if is_clean:
        broker.close()
    files = files.killed()
    files.remove_tree(A / "t-1")
    if leaves_folder:
        files.make_dirs(A / "t-1")
    assert refusal(files, data=(A,)) == (
        "data is missing, and nothing was changed: there is no folder of t-1, created in"
        f" /a{RESTORE}"
    )


def test_a_folder_may_be_moved_to_another_directory() -> None:
    files = written("t")
    (first, *_) = folders(files, A, "t")
    copy_folder(files, A / first, files, B / first)
    files.remove_tree(A / first)
    broker = start(files, data=TWO)
    assert counts(broker, "t") == [1] * 4
    broker.close()
    files = files.killed()
    files.remove_tree(B / first)
    assert f"there is no folder of {first}, created in /b" in refusal(files)


def test_a_partition_that_was_never_created_is_created() -> None:
    files = written("t")
    broker = start(files, data=TWO)
    know_topics(broker, ["new"], partitions=4)
    files = files.killed()
    again = start(files, data=TWO)
    assert counts(again, "new") == [0] * 4
    again.close()
    files = files.killed()
    unmount(files, B)
    assert "new-" in refusal(files)


def test_what_is_being_deleted_may_be_missing() -> None:
    base, step, deleting_count, is_done = written("t"), 0, 0, False
    while not is_done:
        step += 1
        files = base.killed()
        broker = start(files, data=TWO)
        store = broker.services.metadata
        topic_id = store.image.topics["t"].topic_id
        files.crash_at_step = files.steps + step
        try:
            asked(broker, partial(store.delete_topic, topic_id))
            is_done = True
        except Crashed:
            pass
        files = files.killed()
        if LocalStore.open(files, A, BrokerId(0)).image.deleting:
            deleting_count += 1
            for directory in TWO:
                for name in folders(files, directory, "t"):
                    files.remove_tree(directory / name)
        start(files, data=TWO)
    assert deleting_count > 3


class Failing(MemoryFiles):
    """A disk whose second directory cannot be listed."""

    def list_dir(self, path: Path) -> list[str]:
        if path == B:
            raise OSError(EIO, "the disk has failed", str(path))
        return super().list_dir(path)


def test_a_directory_that_fails_at_the_start_has_what_it_has() -> None:
    """The directory's partitions are offline, and they are not created in another directory."""
    files = written("t")
    lost = folders(files, B, "t")
    broker = start(Failing(files.killed()._root), data=TWO)
    hosted = {str(each.topic_partition) for each in broker.services.replicas.led.values()}
    assert hosted == set(folders(files, A, "t"))
    broker.close()
    assert counts(start(files.killed(), data=TWO), "t") == [1] * 4
    assert lost


# --- order of the writes -------------------------------------------------------------------------
Act = Callable[[BrokerServer], None]


def _create(broker: BrokerServer) -> None:
    new = [NewTopic(name, ALONE * 3, {}) for name in ("s", "t")]
    asked(broker, lambda done: broker.services.metadata.create_topics(new, done))


def _extend(broker: BrokerServer) -> None:
    ask = broker.services.metadata.create_partitions
    asked(broker, lambda done: ask("t", 1, ALONE * 3, done))


@pytest.mark.parametrize("act", [_create, _extend])
@pytest.mark.parametrize("is_power_cut", [False, True], ids=["kill -9", "power cut"])
def test_a_partition_that_is_led_has_a_log_that_is_missed(act: Act, is_power_cut: bool) -> None:
    """After each step of a creation the next start succeeds. The start is refused if a partition's
    folder is gone whose records may have been acknowledged."""
    base = written("t", partitions=1) if act is _extend else written()
    step, led_count, is_done = 0, 0, False
    while not is_done:
        step += 1
        files = base.killed()
        broker = start(files, data=TWO)
        before = set(broker.services.replicas.led)
        files.crash_at_step = files.steps + step
        try:
            act(broker)
            is_done = True
        except Crashed:
            pass
        led = [f"{a}-{b}" for a, b in broker.services.replicas.led.keys() - before]
        after = files.crash(Random(step)) if is_power_cut else files.killed()
        start(after.killed(), data=TWO)
        led_count += bool(led)
        for name in led:
            without = after.killed()
            for directory in TWO:
                if without.exists(directory / name):
                    without.remove_tree(directory / name)
            assert f"no folder of {name}" in refusal(without), step
    assert step > 30
    assert 0 < led_count < step


@pytest.mark.parametrize("state", ["new", "one more", "of an earlier release"])
def test_a_start_that_is_killed_at_any_step_can_be_repeated(state: str) -> None:
    base = MemoryFiles() if state == "new" else written("t")
    if state == "of an earlier release":
        forget_ids(base)
    data = (*TWO, C) if state == "one more" else TWO
    step, is_done = 0, False
    while not is_done:
        step += 1
        files = base.killed()
        files.crash_at_step = files.steps + step
        try:
            start(files, data=data)
            is_done = True
        except Crashed:
            pass
        after = files.crash(Random(step))
        broker = start(after, data=data)
        if state != "new":
            assert counts(broker, "t") == [1] * 4
        broker.close()
        after = after.killed()
        unmount(after, data[-1])
        assert f"{data[-1]} has no meta.properties" in refusal(after, data=data)
    assert step > 10


def forget_ids(files: MemoryFiles) -> None:
    """Leave the files as a release wrote them that knew no directory ids."""
    for directory in TWO:
        path = directory / "meta.properties"
        lines = files.read_bytes(path).splitlines(keepends=True)
        files.write_atomically(path, b"".join(x for x in lines if b"directory.id" not in x))
    rows = [json.loads(line) for line in files.read_bytes(A / "klog-metadata").splitlines()[:-1]]
    for row in rows:
        assert row.pop("directories")
    body = b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)
    end = json.dumps({"crc32c": f"{crc32c(body):08x}"}, separators=(",", ":")).encode() + b"\n"
    files.write_atomically(A / "klog-metadata", body + end)


def test_directories_of_an_earlier_release_get_ids_at_the_first_start() -> None:
    files = written("t")
    forget_ids(files)
    broker = start(files, data=TWO)
    assert counts(broker, "t") == [1] * 4
    broker.close()
    files = files.killed()
    assert id_of(files, A) != id_of(files, B)
    unmount(files, B)
    assert "/b has no meta.properties" in refusal(files)


def test_an_earlier_release_reads_what_this_one_writes() -> None:
    """An earlier release ignores keys that it does not know, and does not keep them."""
    files = written("t")
    rows = [json.loads(line) for line in files.read_bytes(A / "klog-metadata").splitlines()]
    assert rows[0]["version"] == 1
    assert set(rows[0]) - {"directories"} == {
        "format",
        "version",
        "cluster_id",
        "broker_id",
        "next_producer_id",
        "topics",
    }
    assert [set(row) - {"directories"} for row in rows[1:-1]] == [
        {"topic", "id", "partitions", "configs"}
    ]


def test_a_log_that_cannot_be_recorded_is_not_led_before_it_is() -> None:
    files = written()
    broker = start(files, data=TWO)
    store = broker.services.metadata
    writes = 0

    def write(path: Path, data: bytes) -> None:
        nonlocal writes
        writes += path.name == "klog-metadata"
        if path.name == "klog-metadata" and writes == 2:
            raise OSError(ENOSPC, "no space left", str(path))
        MemoryFiles.write_atomically(files, path, data)

    files.write_atomically = write  # type: ignore[method-assign]
    outcomes: list[Any] = []
    store.create_topics([NewTopic("t", ALONE * 2, {})], outcomes.extend)
    while not outcomes:
        assert not broker.services.replicas.led
        broker.loop.run_turn(0)
    assert isinstance(outcomes[0], StoreFailed)
    assert writes >= 3
    assert not broker.services.replicas.led
    assert not store.image.topics, "it was taken back"


# --- --accept-missing ----------------------------------------------------------------------------
def epochs(broker: BrokerServer, name: str) -> list[int]:
    states = broker.services.metadata.image.topics[name].partitions
    return [state.leader_epoch for state in states]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


def test_missing_data_is_accepted_for_one_start(caplog: pytest.LogCaptureFixture) -> None:
    files = written("t")
    lost = [int(name[2:]) for name in folders(files, B, "t")]
    gone = id_of(files, B)
    unmount(files, B)
    broker = start(files, data=TWO, accept_missing=True)
    assert counts(broker, "t") == [0 if number in lost else 1 for number in range(4)]
    assert epochs(broker, "t") == [1 if number in lost else 0 for number in range(4)]
    for number in range(4):
        log = log_of(broker, "t", number)
        append(log, now_ms=1)
        assert log.leader_epoch == epochs(broker, "t")[number]
    assert warnings(caplog) == [
        f"the data directory /b has no meta.properties with directory.id {gone} (is its disk"
        " mounted?): klog-metadata drops this data directory (--accept-missing)",
        *(
            f"topic=t partition={number} log_dir=/b missing: a new log begins in a new leader epoch"
            " (--accept-missing)"
            for number in lost
        ),
    ]
    broker.close()
    files = files.killed()
    again = start(files, data=TWO)
    assert sum(counts(again, "t")) == 6
    again.close()
    files = files.killed()
    unmount(files, B)
    assert "/b has no meta.properties" in refusal(files)


def test_a_missing_folder_is_accepted(caplog: pytest.LogCaptureFixture) -> None:
    files = written("t", data=(A,))
    files.remove_tree(A / "t-2")
    broker = start(files, data=(A,), accept_missing=True)
    assert counts(broker, "t") == [1, 1, 0, 1]
    assert epochs(broker, "t") == [0, 0, 1, 0]
    assert len(warnings(caplog)) == 1


def test_a_directory_is_removed_on_purpose(caplog: pytest.LogCaptureFixture) -> None:
    """The directory's folders were moved to another directory before."""
    files = written("t")
    moved = folders(files, B, "t")
    for name in moved:
        copy_folder(files, B / name, files, A / name)
    broker = start(files, data=(A,), accept_missing=True)
    assert counts(broker, "t") == [1] * 4
    assert len(warnings(caplog)) == 1 + len(moved)
    text = f"topic=t partition={moved[0][2:]} log_dir=/b missing: the log in /a is used in a new"
    assert warnings(caplog)[1].startswith(text)
    broker.close()
    start(files.killed(), data=(A,))


def test_a_disk_that_comes_back_later_hides_nothing() -> None:
    """The broker has written to the directory below the mount point meanwhile."""
    files = written("t")
    disk = tree(files, B)
    unmount(files, B)
    broker = start(files, data=TWO, accept_missing=True)
    broker.close()
    files = files.killed()
    below = id_of(files, B)
    unmount(files, B)
    for path, data in disk.items():
        if data is None:
            files.make_dirs(path)
        else:
            files.write_atomically(path, data)
    assert f"the data directory /b has directory.id {id_of(files, B)} instead of {below}; " in (
        refusal(files)
    )


def test_nothing_changes_if_nothing_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    files = written("t")
    before = files.read_bytes(A / "klog-metadata")
    broker = start(files, data=TWO, accept_missing=True)
    assert counts(broker, "t") == [1] * 4
    assert files.read_bytes(A / "klog-metadata") == before
    assert warnings(caplog) == []


def test_a_start_that_accepts_can_be_killed_at_any_step() -> None:
    """The next one is refused again, or it has the new epochs."""
    base = written("t")
    lost = [int(name[2:]) for name in folders(base, B, "t")]
    unmount(base, B)
    step, refused_count, is_done = 0, 0, False
    while not is_done:
        step += 1
        files = base.killed()
        files.crash_at_step = files.steps + step
        broker = make(files, data=TWO, accept_missing=True)
        try:
            broker.start()
            is_done = True
        except Crashed:
            pass
        after = files.crash(Random(step))
        try:
            again = start(after.killed(), data=TWO)
        except CannotStart:
            refused_count += 1
            again = start(after.crash(Random(step)), data=TWO, accept_missing=True)
        assert all(epochs(again, "t")[number] >= 1 for number in lost)
        assert counts(again, "t") == [0 if number in lost else 1 for number in range(4)]
    assert 10 < refused_count < step
