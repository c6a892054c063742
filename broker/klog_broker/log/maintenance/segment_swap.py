"""Replaces segments by the cleaned segment that was made from them.

After a crash at any moment, the next start has the old segments or the new one (leftovers.py). The
new files are synced and then renamed to .swap. Only when these names are durable, the old files are
deleted. Only when the deletion is durable, the new files get their final names. The loop's thread
renames, helper threads sync. Readers keep the segments that they already have.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from klog_broker.log.errors import LogStorageError
from klog_broker.log.segment.segment import Segment
from klog_broker.log.segment.segment_renaming import mark_deleted, rename_files
from klog_broker.log.state.log_state import LogState
from klog_broker.runtime.disk.files import OpenDirectory
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.errors import KlogError
from pyspark_klog.storage.names import SWAP_SUFFIX

SwapCallback = Callable[[BaseException | None], None]


class SourcesChanged(KlogError):
    """The log no longer has the segments that the cleaner read: the log was truncated or emptied,
    or segments were deleted."""


class Swapper:
    """Replaces segments of one log by cleaned ones. ``remove_later(paths, delay_ms)`` removes the
    files of the replaced segments."""

    def __init__(
        self,
        state: LogState,
        helpers: Helpers,
        remove_later: Callable[[list[Path], int], None],
    ) -> None:
        self._state = state
        self._helpers = helpers
        self._remove_later = remove_later
        self._held = ExitStack()
        """The open directory and segment files that the running swap (the replacement of segments
        by a cleaned one) still needs."""

    def close(self) -> None:
        """Release the files of a running replacement of segments, because the log is closed.

        The next start completes the replacement, or, after a power cut, may find the old segments.
        """
        self._held.close()

    def swap(
        self, cleaned: Segment, sources: Sequence[tuple[Segment, int]], done: SwapCallback
    ) -> None:
        """Replace ``sources`` by ``cleaned``; ``done(error)`` is called in the loop's thread.

        ``sources`` are segments with the sizes that they had when the cleaner read them. Raises
        SourcesChanged or LogStorageError; then the log still has its old segments.
        """
        state = self._state
        state.check_online()
        segments = state.segments.segments
        first = next((n for n, each in enumerate(segments) if each is sources[0][0]), len(segments))
        found = segments[first : first + len(sources)]
        if [(each, each.size_bytes) for each in found] != list(sources):
            raise SourcesChanged(f"{state.topic_partition} was changed while it was cleaned")
        # Open all files now, so that the replacement of the segments cannot fail for want of a
        # descriptor once it has begun.
        held = self._held = ExitStack()
        try:
            directory = state.files.open_dir(state.path)
            held.callback(directory.close)
            for file in cleaned.opened_files():
                held.enter_context(file.held())
            rename_files(cleaned, SWAP_SUFFIX)
        except OSError as error:
            held.close()
            raise state.log_directory.error_for(error, state.topic_partition) from error
        state.set_segments((*segments[:first], cleaned, *segments[first + len(sources) :]))
        state.begin_swap()
        for each in found:
            held.callback(each.close)
        steps: list[Callable[[], None]] = [
            partial(self._delete, found, cleaned.base_offset),
            partial(rename_files, cleaned, ""),
        ]

        def ended(error: BaseException | None) -> None:
            held.close()
            state.end_swap()
            done(error)

        self._sync_and_step(directory, steps, ended)

    def _delete(self, segments: Sequence[Segment], base_offset: int) -> None:
        renamed: list[Path] = []
        for each in segments:
            renamed += mark_deleted(each, keep_snapshot=each.base_offset == base_offset)
        self._remove_later(renamed, self._state.config.file_delete_delay_ms)

    def _sync_and_step(
        self, directory: OpenDirectory, steps: list[Callable[[], None]], done: SwapCallback
    ) -> None:
        """Sync the directory before each of ``steps`` and after the last one, then call ``done``.

        A step renames or deletes files, which is safe only once the renames before it are durable.
        """
        state = self._state

        def synced(_: None, error: BaseException | None) -> None:
            try:
                if error is not None:
                    raise error
                state.check_usable()
                if steps:
                    steps.pop(0)()
                    self._sync_and_step(directory, steps, done)
                    return
            except OSError as failure:
                error = self._failed(failure)
            except LogStorageError as failure:
                error = failure
            done(error)

        self._helpers.submit(directory.sync, synced)

    def _failed(self, error: OSError) -> LogStorageError:
        state = self._state
        if state.is_offline:
            return LogStorageError(f"{state.topic_partition} is offline")
        return state.log_directory.go_offline(error)
