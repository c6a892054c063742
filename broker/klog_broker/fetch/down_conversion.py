"""Conversion down for Fetch before version 4: beside the loop, and bounded.

One response is converted at a time, in a helper thread; the others wait in the order in which they
came, and so they do while what was converted and has not been sent takes much memory.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from klog_broker.runtime.disk.files import ReadRegion
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.errors import ErrorCode
from pyspark_klog.records.convert_down import Work, down_convert_some
from pyspark_klog.records.errors import DecompressedTooLarge, RecordsError, UnsupportedCodec

RESPONSE_WORK_BYTES = 32 * 1024 * 1024
"""What one response's conversion may inflate and write; its first batch comes in any case."""
UNSENT_BYTES = 128 * 1024 * 1024
"""Converted sets of all connections that have not been sent: no conversion begins beyond it."""


class SetToConvert(NamedTuple):
    """The records that were found for one partition, and the offset that was asked for."""

    region: ReadRegion
    first_offset: int
    max_decompressed_bytes: int


Converted = bytes | memoryview | ErrorCode
OnConverted = Callable[[Sequence[Converted], BaseException | None], None]
"""Gets a set or an error for each that was to be converted; with an exception, which is a bug,
none."""


class _Response:
    """The sets of one response. ``convert`` runs in a helper thread."""

    def __init__(self, sets: Sequence[SetToConvert], magic: int, first: int) -> None:
        self.is_wanted = True
        self._sets = sets
        self._magic = magic
        self._first = first

    def convert(self) -> list[Converted]:
        """Converts as many sets as the work allows; the others stay empty, and the client asks for
        them again."""
        work = Work(RESPONSE_WORK_BYTES)
        converted: list[Converted] = [b""] * len(self._sets)
        for number in range(len(self._sets)):
            if not work.left_bytes or not self.is_wanted:
                break
            place = (self._first + number) % len(self._sets)
            converted[place] = self._convert(self._sets[place], work)
        return converted

    def _convert(self, wanted: SetToConvert, work: Work) -> Converted:
        region = wanted.region
        try:
            found = down_convert_some(
                region.file.pread(region.size, region.position),
                self._magic,
                first_offset=wanted.first_offset,
                max_bytes=wanted.max_decompressed_bytes,
                work=work,
            )
        except UnsupportedCodec:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        except DecompressedTooLarge:
            return ErrorCode.MESSAGE_TOO_LARGE
        except RecordsError:
            return ErrorCode.CORRUPT_MESSAGE
        except OSError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return b"" if found is None else found.data


class DownConversions:
    """The conversions of one broker. Loop thread only."""

    def __init__(self, loop: Loop, helpers: Helpers, prepare: Callable[[], object]) -> None:
        """``prepare`` runs once, in a helper thread, before the first conversion."""
        self.unsent_bytes = 0
        self._loop = loop
        self._helpers = helpers
        self._prepare: Callable[[], object] | None = prepare
        # Apart from each other, so that whoever can cancel a response does not hold its answer.
        self._waiting: deque[tuple[_Response, OnConverted]] = deque()
        self._is_running = False
        self._turn = 0

    def begin(
        self, sets: Sequence[SetToConvert], magic: int, on_converted: OnConverted
    ) -> Callable[[], None]:
        """Converts the sets of one response to format ``magic`` when it is its turn, and calls
        back. Returns a function to be called if nobody waits for the response any more: then
        ``on_converted`` may not be called."""
        # Each response begins with another of its partitions, so that the bound starves none.
        response = _Response(sets, magic, self._turn % len(sets))
        self._turn += 1
        self._waiting.append((response, on_converted))
        self._next()

        def cancel() -> None:
            response.is_wanted = False

        return cancel

    def _next(self) -> None:
        while self._waiting and not self._is_running and self.unsent_bytes < UNSENT_BYTES:
            response, on_converted = self._waiting.popleft()
            if response.is_wanted:
                self._is_running = True
                self._run(response, on_converted)

    def _run(self, response: _Response, on_converted: OnConverted) -> None:
        prepare, self._prepare = self._prepare, None

        def work() -> list[Converted]:
            if prepare is not None:
                prepare()
            return response.convert()

        def done(found: list[Converted] | None, error: BaseException | None) -> None:
            self._is_running = False
            for each in found or ():
                if isinstance(each, memoryview):
                    self._count(each)
            on_converted(found or (), error)
            self._next()

        self._helpers.submit(work, done)

    def _count(self, data: memoryview) -> None:
        """Counts a converted set until nobody holds it any more: it was sent, or its connection is
        gone."""
        size_bytes = data.nbytes
        self.unsent_bytes += size_bytes
        # The last holder may let go of it in another thread than the loop's.
        left = weakref.finalize(data.obj, lambda: self._loop.post(lambda: self._left(size_bytes)))
        left.atexit = False

    def _left(self, size_bytes: int) -> None:
        self.unsent_bytes -= size_bytes
        self._next()
