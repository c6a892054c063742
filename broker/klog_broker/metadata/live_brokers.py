"""The ids of the live brokers according to the newest metadata image."""

from collections.abc import Callable, Collection, Iterator

from klog_broker.metadata.image import MetadataImage
from pyspark_klog.ids import BrokerId


class LiveBrokerIds(Collection[BrokerId]):
    """The ids of the brokers in the newest metadata image. Each call reads the image that is newest
    then."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image

    def __contains__(self, broker_id: object) -> bool:
        return broker_id in self._image().brokers

    def __iter__(self) -> Iterator[BrokerId]:
        return iter(self._image().brokers)

    def __len__(self) -> int:
        return len(self._image().brokers)
