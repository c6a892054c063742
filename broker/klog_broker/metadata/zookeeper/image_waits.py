"""Who waits until the image shows something, and how long."""

from collections.abc import Callable

from klog_broker.metadata.image import MetadataImage
from klog_broker.runtime.event_loop.loop import Loop

IsShown = Callable[[MetadataImage], bool]


class ImageWaits:
    """For the loop's thread. `changed` is called with each new image."""

    def __init__(self, loop: Loop, image: Callable[[], MetadataImage]) -> None:
        self._loop = loop
        self._image = image
        self._waiting: dict[ImageWait, None] = {}

    def begin(self, timeout_ms: int, over: Callable[[bool], None]) -> "ImageWait":
        """The time begins now; what for is said later (`until`). `over` is called once, later:
        whether it was shown in time."""
        return ImageWait(self._loop, self._image, self._waiting, timeout_ms, over)

    def changed(self) -> None:
        """There is another image."""
        for each in list(self._waiting):
            each.look()


class ImageWait:
    """One that waits; see ImageWaits.begin."""

    def __init__(
        self,
        loop: Loop,
        image: Callable[[], MetadataImage],
        waiting: "dict[ImageWait, None]",
        timeout_ms: int,
        over: Callable[[bool], None],
    ) -> None:
        self._image = image
        self._waiting = waiting
        self._over = over
        self._is_over = False
        self._is_shown: IsShown
        self._timer = loop.call_later(max(timeout_ms, 0), lambda: self._end(is_shown=False))

    def until(self, is_shown: IsShown) -> None:
        """What is waited for; the present image may show it."""
        if not self._is_over:
            self._is_shown = is_shown
            self._waiting[self] = None
            self.look()

    def drop(self) -> bool:
        """Nothing is waited for any more, and `over` is not called. Whether it had not been."""
        was_over, self._is_over = self._is_over, True
        self._timer.cancel()
        self._waiting.pop(self, None)
        return not was_over

    def look(self) -> None:
        """The image is another one."""
        if not self._is_over and self._is_shown(self._image()):
            self._end(is_shown=True)

    def _end(self, *, is_shown: bool) -> None:
        if self.drop():
            self._over(is_shown)
