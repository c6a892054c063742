"""Named places in the broker's code where a test can make the world fail.

Code that is written in steps (a checkpoint, a metadata change) calls ``reach("store.renamed")``
between them. In a running broker that is nothing; a test gives actions that raise or kill.
"""

from collections.abc import Callable, Mapping


class FailurePoints:
    """Actions by name of place. The default has none; ``reach`` then only looks in a dict."""

    def __init__(self, actions: Mapping[str, Callable[[], None]] | None = None) -> None:
        self._actions = dict(actions or {})

    def reach(self, place: str) -> None:
        """Runs the action for ``place``, if there is one; what it raises passes through."""
        action = self._actions.get(place)
        if action is not None:
            action()
