"""Hands out producer ids from durable blocks."""

from collections import deque
from collections.abc import Callable

from klog_broker.metadata.interface import MetadataStore, ProducerIdBlock
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import ProducerId

# The next block is requested when this percentage of the present block is used, as in Kafka.
_USED_BEFORE_THE_NEXT = 90

GotProducerId = Callable[[ProducerId | None], None]


class ProducerIds:
    """Hands out producer ids, each once.

    The end of a block is durable before the block's first id is handed out. After a crash, the
    remaining ids of a block are never used.
    """

    def __init__(self, metadata: MetadataStore, *, prefetches: bool = False) -> None:
        """``prefetches`` requests the next block before the present one is used up, because the
        block comes from another broker."""
        self.unavailable = (
            # The controller may soon send a block. Kafka answers with the same error.
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if prefetches else ErrorCode.KAFKA_STORAGE_ERROR
        )
        """The error for a client if no producer id is available."""
        self._metadata = metadata
        self._prefetches = prefetches
        self._following: ProducerIdBlock | None = None
        self._prefetch_at = 0
        self._next = 0
        self._end = 0
        self._waiting: deque[GotProducerId] = deque()
        self._is_allocating = False

    def next_id(self, got: GotProducerId) -> None:
        """Call ``got`` with a new producer id, now or once a new block is durable.

        ``got`` gets None if the metadata store cannot allocate a block.
        """
        if self._next < self._end and not self._waiting:
            got(self._take())
            return
        self._waiting.append(got)
        self._allocate()

    def fetch_first(self) -> None:
        """Request the first block before a producer needs an id.

        If the request fails, the next call of `next_id` repeats it.
        """
        if self._next == self._end:
            self._allocate()

    def _take(self) -> ProducerId:
        taken = ProducerId(self._next)
        self._next += 1
        if self._next == self._end and self._following is not None:
            following, self._following = self._following, None
            self._use(following)
        if self._prefetches and self._next >= self._prefetch_at and self._following is None:
            self._allocate()
        return taken

    def _use(self, block: ProducerIdBlock) -> None:
        self._next, self._end = block
        self._prefetch_at = block.first + (block.end - block.first) * _USED_BEFORE_THE_NEXT // 100

    def _allocate(self) -> None:
        if not self._is_allocating:
            self._is_allocating = True
            self._metadata.allocate_producer_ids(self._allocated)

    def _allocated(self, block: ProducerIdBlock | Exception) -> None:
        self._is_allocating = False
        if isinstance(block, Exception):
            waiting, self._waiting = self._waiting, deque()
            for got in waiting:
                got(None)
            return
        if self._next < self._end:
            self._following = block
        else:
            self._use(block)
        while self._waiting and self._next < self._end:
            self._waiting.popleft()(self._take())
        if self._waiting:
            self._allocate()
