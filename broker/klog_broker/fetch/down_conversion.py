"""Down-conversion for Fetch before version 4, in helper threads and with bounded memory.

One response is converted at a time; the other responses wait in their order of arrival. Responses
also wait while converted records that were not sent yet take too much memory.
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
from pyspark_klog.records.down_conversion import ConversionBudget, down_convert_fetched
from pyspark_klog.records.errors import DecompressedTooLarge, RecordsError, UnsupportedCodec

RESPONSE_WORK_BYTES = 32 * 1024 * 1024
"""How many bytes may be decompressed and written to convert one response's records to an older
format; the response's first batch is converted in any case."""
UNSENT_BYTES = 128 * 1024 * 1024
"""How many bytes of records that were converted to an older format, but not sent yet, all
connections together may have before no further conversion begins."""


class SetToConvert(NamedTuple):
    """The records of one partition that are to be converted to an older record format, the
    requested fetch offset, and the most bytes to which one batch may decompress."""

    region: ReadRegion
    first_offset: int
    max_decompressed_bytes: int


Converted = bytes | memoryview | ErrorCode
OnConverted = Callable[[Sequence[Converted], BaseException | None], None]
"""Called when the conversion of a response has ended: with the converted records or an error code
for each SetToConvert, or, after a bug, with no results and the exception."""


class _Response:
    """The record sets of one response, one for each partition, that are to be converted to an older
    record format. ``convert`` runs in a helper thread."""

    def __init__(self, sets: Sequence[SetToConvert], magic: int, first: int) -> None:
        self.is_wanted = True
        self._sets = sets
        self._magic = magic
        self._first = first

    def convert(self) -> list[Converted]:
        """Convert the record sets until RESPONSE_WORK_BYTES are decompressed and written, or the
        conversion is cancelled. The results of the sets that are not converted by then are empty,
        so the client fetches their records again."""
        work = ConversionBudget(RESPONSE_WORK_BYTES)
        converted: list[Converted] = [b""] * len(self._sets)
        for number in range(len(self._sets)):
            if not work.left_bytes or not self.is_wanted:
                break
            place = (self._first + number) % len(self._sets)
            converted[place] = self._convert(self._sets[place], work)
        return converted

    def _convert(self, wanted: SetToConvert, work: ConversionBudget) -> Converted:
        region = wanted.region
        try:
            found = down_convert_fetched(
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
    """The down-conversions of one broker: conversions of records to an older format, for clients
    that send Fetch before version 4. Loop thread only."""

    def __init__(self, loop: Loop, helpers: Helpers, prepare: Callable[[], object]) -> None:
        """``prepare`` runs once, in a helper thread, before the first conversion, to load compiled
        code for it."""
        self.unsent_bytes = 0
        self._loop = loop
        self._helpers = helpers
        self._prepare: Callable[[], object] | None = prepare
        # `on_converted` is not a field of _Response: the returned function `cancel` refers to the
        # _Response, and must not keep alive the objects to which `on_converted` refers.
        self._waiting: deque[tuple[_Response, OnConverted]] = deque()
        self._is_running = False
        self._turn = 0

    def start_conversion(
        self, sets: Sequence[SetToConvert], magic: int, on_converted: OnConverted
    ) -> Callable[[], None]:
        """Convert the record sets of one response to format ``magic``, after the responses that
        already wait for their conversion, and call ``on_converted``. Return a function that cancels
        the conversion: unless the conversion has already begun, ``on_converted`` is then never
        called."""
        # Begin the conversion of each response with the record set of another partition, so that
        # RESPONSE_WORK_BYTES does not always exclude the same partition.
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

        def on_response_converted(
            found: list[Converted] | None, error: BaseException | None
        ) -> None:
            self._is_running = False
            for each in found or ():
                if isinstance(each, memoryview):
                    self._count(each)
            on_converted(found or (), error)
            self._next()

        self._helpers.submit(work, on_response_converted)

    def _count(self, data: memoryview) -> None:
        """Count the bytes of converted records in ``unsent_bytes`` until their memory is freed:
        when they have been sent, or their connection was closed."""
        size_bytes = data.nbytes
        self.unsent_bytes += size_bytes
        # The last reference to the data may be dropped in another thread than the loop's, so post
        # the change to the loop.
        left = weakref.finalize(data.obj, lambda: self._loop.post(lambda: self._left(size_bytes)))
        left.atexit = False

    def _left(self, size_bytes: int) -> None:
        self.unsent_bytes -= size_bytes
        self._next()
