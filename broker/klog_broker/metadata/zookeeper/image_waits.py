"""Waits, with a timeout, until the metadata image fulfils a condition."""

from collections.abc import Callable

from klog_broker.metadata.image import MetadataImage
from klog_broker.runtime.event_loop.loop import Loop

IsShown = Callable[[MetadataImage], bool]


class ImageWaits:
    """All waits until the metadata image fulfils a condition, for example until it shows a leader
    for each partition of a new topic. For the loop's thread. The owner calls `changed` after each
    new image."""

    def __init__(self, loop: Loop, image: Callable[[], MetadataImage]) -> None:
        self._loop = loop
        self._image = image
        self._waiting: dict[ImageWait, None] = {}

    def start_wait(self, timeout_ms: int, over: Callable[[bool], None]) -> "ImageWait":
        """Start the timeout of a new wait now; `ImageWait.until` sets the condition later. Calls
        `over` once, unless the wait is dropped: with True if an image fulfilled the condition in
        time, else with False."""
        return ImageWait(self._loop, self._image, self._waiting, timeout_ms, over)

    def changed(self) -> None:
        """Check the conditions of all waits against the new image."""
        for each in list(self._waiting):
            each.check()


class ImageWait:
    """One wait until the metadata image fulfils a condition, made by `ImageWaits.start_wait`."""

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
        """Set the condition that the metadata image must fulfil, and check the present image at
        once."""
        if not self._is_over:
            self._is_shown = is_shown
            self._waiting[self] = None
            self.check()

    def drop(self) -> bool:
        """End the wait for the image without a call of `over`. Return False if the wait was over
        before."""
        was_over, self._is_over = self._is_over, True
        self._timer.cancel()
        self._waiting.pop(self, None)
        return not was_over

    def check(self) -> None:
        """End the wait if the present image fulfils the condition."""
        if not self._is_over and self._is_shown(self._image()):
            self._end(is_shown=True)

    def _end(self, *, is_shown: bool) -> None:
        if self.drop():
            self._over(is_shown)
