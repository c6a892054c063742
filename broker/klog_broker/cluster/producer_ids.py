"""Hands out producer ids from blocks that the metadata store allocates durably."""

from collections import deque
from collections.abc import Callable

from klog_broker.metadata.interface import MetadataStore, ProducerIdBlock
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import ProducerId

# In a cluster, the next block of producer ids is requested when this percentage of the present
# block is used, as in Kafka.
_USED_BEFORE_THE_NEXT = 90

OnProducerId = Callable[[ProducerId | None], None]


class ProducerIds:
    """Hands out producer ids, each once.

    The end of a block is durable before the block's first id is handed out. After a crash, the
    remaining ids of a block are never used.
    """

    def __init__(self, metadata: MetadataStore, *, prefetches: bool = False) -> None:
        """With ``prefetches`` the next block of producer ids is requested before the present block
        is used up: in a cluster the controller, often another broker, allocates blocks, and its
        response takes time."""
        self.unavailable = (
            # The controller may soon send a block of producer ids, so the client should retry.
            # Kafka uses the same error.
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if prefetches else ErrorCode.KAFKA_STORAGE_ERROR
        )
        """The error for a client if no producer id is available."""
        self._metadata = metadata
        self._prefetches = prefetches
        self._following: ProducerIdBlock | None = None
        self._prefetch_at = 0
        self._next = 0
        self._end = 0
        self._waiting: deque[OnProducerId] = deque()
        self._is_allocating = False

    def next_id(self, on_id: OnProducerId) -> None:
        """Call ``on_id`` with a new producer id, now or once a new block is allocated.

        ``on_id`` gets None if the metadata store cannot allocate a block.
        """
        if self._next < self._end and not self._waiting:
            on_id(self._next_from_block())
            return
        self._waiting.append(on_id)
        self._allocate()

    def fetch_first(self) -> None:
        """Request the first block of ids before a producer needs an id.

        If the request fails, the next call of `next_id` repeats it.
        """
        if self._next == self._end:
            self._allocate()

    def _next_from_block(self) -> ProducerId:
        taken = ProducerId(self._next)
        self._next += 1
        if self._next == self._end and self._following is not None:
            following, self._following = self._following, None
            self._start_block(following)
        if self._prefetches and self._next >= self._prefetch_at and self._following is None:
            self._allocate()
        return taken

    def _start_block(self, block: ProducerIdBlock) -> None:
        self._next, self._end = block
        self._prefetch_at = block.first + (block.end - block.first) * _USED_BEFORE_THE_NEXT // 100

    def _allocate(self) -> None:
        if not self._is_allocating:
            self._is_allocating = True
            self._metadata.allocate_producer_ids(self._on_block)

    def _on_block(self, block: ProducerIdBlock | Exception) -> None:
        self._is_allocating = False
        if isinstance(block, Exception):
            waiting, self._waiting = self._waiting, deque()
            for on_id in waiting:
                on_id(None)
            return
        if self._next < self._end:
            self._following = block
        else:
            self._start_block(block)
        while self._waiting and self._next < self._end:
            self._waiting.popleft()(self._next_from_block())
        if self._waiting:
            self._allocate()
