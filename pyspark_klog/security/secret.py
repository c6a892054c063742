"""A value that no log line or message shows: a password, key, token, or a setting with one."""

from typing import NoReturn


class Secret:
    """A text that only `reveal` shows; str, repr and format give ``***``.

    Secrets with the same text are equal and have the same hash, so that settings with secrets can
    be the key of a cache. Secrets can be pickled, because executors need them.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text in the clear."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> tuple[type["Secret"], tuple[str]]:
        return Secret, (self._text,)

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format("***", spec)

    def __iter__(self) -> NoReturn:
        raise TypeError("a secret has no iterator; reveal() returns its text")
