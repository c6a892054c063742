"""KafkaError and KafkaException."""

from __future__ import annotations

import builtins
from operator import index
from typing import Any

from pyspark_klog.kafka._codes import ErrorCodes, code_name, code_text

_MOST_CODE = 2**31 - 1


class KafkaError(ErrorCodes):
    """One error: its code, a text, and what a program can do about it.

    Equal to, and ordered like, its code: ``error == KafkaError._PARTITION_EOF``. A `KafkaError` is
    no exception: `KafkaException` carries one. ``reason`` is the text; without one the text
    describes the code.
    """

    __slots__ = ("_code", "_is_fatal", "_is_retriable", "_must_abort", "_reason")

    def __init__(
        self,
        error: int,
        reason: builtins.str | None = None,
        fatal: bool = False,
        retriable: bool = False,
        txn_requires_abort: bool = False,
    ) -> None:
        if reason is not None and not isinstance(reason, str):
            raise TypeError(f"argument 2 must be str or None, not {type(reason).__name__}")
        self._code = index(error)
        if not -_MOST_CODE <= self._code <= _MOST_CODE:
            raise OverflowError(f"an error code has 32 bits, so that {error} is none")
        self._reason = code_text(self._code) if reason is None else reason
        self._is_fatal = bool(fatal)
        self._is_retriable = bool(retriable)
        self._must_abort = bool(txn_requires_abort)

    def code(self) -> int:
        """Return the code: one of Kafka's, or below -1 one of the client's."""
        return self._code

    def name(self) -> builtins.str:
        """Return the name of the code, for example ``_PARTITION_EOF``."""
        return code_name(self._code)

    def str(self) -> builtins.str:
        """Return the text."""
        return self._reason

    def fatal(self) -> bool:
        """Whether the client has failed for good: it has to be closed and made again."""
        return self._is_fatal

    def retriable(self) -> bool:
        """Whether the same call may succeed later."""
        return self._is_retriable

    def txn_requires_abort(self) -> bool:
        """Whether the transaction has to be aborted, after which the producer can go on."""
        return self._must_abort

    def __eq__(self, other: object) -> bool:
        code = _code_of(other)
        return NotImplemented if code is None else self._code == code

    def __hash__(self) -> int:
        return self._code

    def __lt__(self, other: KafkaError | int) -> bool:
        code = _code_of(other)
        return NotImplemented if code is None else self._code < code

    def __le__(self, other: KafkaError | int) -> bool:
        code = _code_of(other)
        return NotImplemented if code is None else self._code <= code

    def __gt__(self, other: KafkaError | int) -> bool:
        code = _code_of(other)
        return NotImplemented if code is None else self._code > code

    def __ge__(self, other: KafkaError | int) -> bool:
        code = _code_of(other)
        return NotImplemented if code is None else self._code >= code

    def __repr__(self) -> builtins.str:
        fatal = "FATAL," if self._is_fatal else ""
        return f'KafkaError{{{fatal}code={self.name()},val={self._code},str="{self._reason}"}}'

    def __reduce__(self) -> tuple[Any, ...]:
        flags = self._is_fatal, self._is_retriable, self._must_abort
        return KafkaError, (self._code, self._reason, *flags)


def _code_of(other: object) -> int | None:
    if isinstance(other, KafkaError):
        return other.code()
    return other if isinstance(other, int) else None


class KafkaException(Exception):
    """A call failed; ``args[0]`` is the `KafkaError`."""


class IllegalStateException(RuntimeError):
    """The client's state does not allow the call."""


class ConcurrentModificationException(RuntimeError):
    """Two threads have called one consumer at the same time."""
