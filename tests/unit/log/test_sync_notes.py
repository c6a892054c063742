"""Which logs were being synced when a process ended: what the next one finds."""

import errno

import pytest

from klog_broker.log.directory.sync_notes import SyncNotes
from tests.support.log.harness import DATA
from tests.support.runtime.memory_files import Crashed, MemoryFiles

LONGEST = "t" * 249 + "-99999"


def notes_on(files: MemoryFiles) -> SyncNotes:
    files.make_dirs(DATA)
    notes = SyncNotes(files, DATA)
    notes.open()
    return notes


def fail(notes: SyncNotes, log: str, error: BaseException) -> None:
    with pytest.raises(type(error)), notes.note_sync(log):
        raise error


def test_after_syncs_that_succeeded_nothing_is_suspect() -> None:
    files = MemoryFiles()
    notes = notes_on(files)
    with notes.note_sync("a-0"), notes.note_sync("b-0"):
        pass
    after = notes_on(files.killed())
    assert not after.is_suspect("a-0")
    assert not after.is_suspect("b-0")


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "input/output error"), OSError(errno.ENOSPC, "full"), Crashed()]
)
def test_a_sync_that_failed_or_never_ended_makes_its_log_suspect(error: BaseException) -> None:
    files = MemoryFiles()
    notes = notes_on(files)
    with notes.note_sync("b-0"):
        fail(notes, LONGEST, error)
    after = notes_on(files.killed())
    assert after.is_suspect(LONGEST)
    assert not after.is_suspect("b-0")


def test_a_sync_that_was_not_tried_or_whose_log_is_gone_leaves_no_note() -> None:
    files = MemoryFiles()
    notes = notes_on(files)
    fail(notes, "a-0", OSError(errno.EMFILE, "too many open files"))
    fail(notes, "b-0", FileNotFoundError(errno.ENOENT, "no such file"))
    after = notes_on(files.killed())
    assert not after.is_suspect("a-0")
    assert not after.is_suspect("b-0")


def test_a_log_is_suspect_until_it_was_synced_again_whatever_ends_in_between() -> None:
    files = MemoryFiles()
    fail(notes_on(files), "a-0", OSError(errno.EIO, "input/output error"))
    files = files.killed()
    assert notes_on(files).is_suspect("a-0")
    files = files.killed()
    again = notes_on(files)
    assert again.is_suspect("a-0")
    with again.note_sync("a-0"):
        pass
    assert not notes_on(files.killed()).is_suspect("a-0")


def test_what_was_found_is_forgotten_once_all_is_loaded() -> None:
    files = MemoryFiles()
    fail(notes_on(files), "deleted-0", OSError(errno.EIO, "input/output error"))
    files = files.killed()
    notes = notes_on(files)
    fail(notes, "new-0", OSError(errno.EIO, "input/output error"))
    notes.remove_old_notes()
    after = notes_on(files.killed())
    assert not after.is_suspect("deleted-0")
    assert after.is_suspect("new-0")


def test_more_logs_than_the_notes_can_name_make_all_logs_suspect() -> None:
    files = MemoryFiles()
    notes = notes_on(files)
    for number in range(64):
        fail(notes, f"a-{number}", Crashed())
    assert not notes_on(files.killed()).is_suspect("another-0")
    fail(notes, "a-64", Crashed())
    assert notes_on(files.killed()).is_suspect("another-0")


def test_what_a_power_cut_made_of_the_notes_stops_nobody() -> None:
    files = MemoryFiles()
    files.make_dirs(DATA)
    files.open(DATA / "klog-syncs", create=True).pwrite(bytes(range(256)) * 65, 0)
    notes = notes_on(files)
    with notes.note_sync("a-0"):
        pass
    assert not notes.is_suspect("a-0")


def test_no_sync_begins_once_the_notes_are_closed() -> None:
    """A failure of such a sync would leave no note."""
    files = MemoryFiles()
    notes = notes_on(files)
    with notes.note_sync("a-0"):
        notes.close()
    with pytest.raises(OSError, match="list of unsynced logs is closed"), notes.note_sync("b-0"):
        raise AssertionError("the sync has begun")
    # The failure of the running sync could not be noted any more, so the log is suspect.
    assert notes_on(files.killed()).is_suspect("a-0")
