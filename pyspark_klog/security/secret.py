"""A value that is never shown: passwords, keys, tokens, and settings that hold them."""

from typing import NoReturn


class Secret:
    """Text that `reveal` gives and nothing else shows.

    Equal secrets are equal and hash alike, so that settings with them key a cache; they can be
    pickled, since an executor needs them.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself."""
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
        raise TypeError("a secret is not to be taken apart")
