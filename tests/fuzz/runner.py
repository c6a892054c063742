"""Feeds a target its inputs, in this process or in one of its own that may hang or die.

Input N of a seed depends only on the seed, the target's name and N. The state of the target depends
on the earlier inputs of its block, so that an input is repeated by feeding its block again.
"""

from __future__ import annotations

import logging
import multiprocessing
import resource
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.target import BrokenPromise, Target
from tests.fuzz.targets import load_target

HANGS_AFTER_S = 60
"""An input that takes this long hangs; the slowest takes a few milliseconds."""
START_METHOD = "spawn"
"""How the process starts: it inherits nothing from the process that watches it."""
_STARTS_WITHIN_S = 600
"""Loading a target may compile kernels."""
_MOST_GROWTH_BYTES = 2 << 30
"""How much address space the process may add after it has loaded the target."""
_MOST_FINDINGS = 20
_MOST_TRIES = 400
_STARTING = (1 << 64) - 1


@dataclass(frozen=True)
class Finding:
    """An input on which the target broke a promise."""

    target: str
    seed: int
    number: int
    data: bytes
    text: str
    is_alone: bool = True
    """Whether the input fails without the earlier inputs of its block."""

    def lines(self) -> Iterator[str]:
        """The lines to print."""
        yield f"{self.target} input {self.number}: {self.text}"
        if self.data:
            alone = "" if self.is_alone else " (fails only behind the inputs before it)"
            yield f"  {len(self.data)} bytes{alone}: {self.data.hex()}"
        again = f"./dev fuzz {self.target} --seed {self.seed} --input {self.number}"
        yield f"  feed it again: {again}"


def run(
    target: Target,
    seed: int,
    numbers: range,
    on_begin: Callable[[int], object] = lambda _: None,
) -> list[Finding]:
    """Feed these inputs; return one finding for each place in the code where some failed."""
    found: dict[str, Finding] = {}
    with _silence():
        for number in numbers:
            if number % target.block == 0 or number == numbers.start:
                target.renew()
            on_begin(number)
            data = target.make(Random(f"{seed} {target.name} {number}"))
            error = _failure(target, data, measures=number % target.memory_sample == 0)
            if error is None:
                continue
            place = _place_of(error)
            if place not in found:
                smaller, is_alone = _smaller(target, data, place)
                text = f"{type(error).__name__}: {error} ({place})"
                found[place] = Finding(target.name, seed, number, smaller, text, is_alone)
            target.renew()
            if len(found) >= _MOST_FINDINGS:
                break
    return list(found.values())


def again(target: Target, seed: int, number: int) -> list[Finding]:
    """Feed one input again, after the earlier inputs of its block."""
    start = number - number % target.block
    return [each for each in run(target, seed, range(start, number + 1)) if each.number == number]


def _failure(target: Target, data: bytes, *, measures: bool) -> BaseException | None:
    try:
        if measures:
            _check_memory(target, data)
        else:
            target.check(data)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        return error
    return None


def _check_memory(target: Target, data: bytes) -> None:
    tracemalloc.start()
    try:
        target.check(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if peak > target.most_bytes(data):
        raise BrokenPromise(
            f"{peak} bytes of memory for {len(data)} bytes of input, allowed were "
            f"{target.most_bytes(data)}"
        )


def _place_of(error: BaseException) -> str:
    """The place where the error was raised: one finding for each place is enough."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    path = Path(trace.tb_frame.f_code.co_filename)
    return f"{path.parent.name}/{path.name}:{trace.tb_lineno}"


def _smaller(target: Target, data: bytes, place: str) -> tuple[bytes, bool]:
    """The input without the pieces that the failure does not need.

    The flag tells whether the input fails at all without the earlier ones.
    """

    def fails(candidate: bytes) -> bool:
        target.renew()
        for measures in (False, True):
            error = _failure(target, candidate, measures=measures)
            if error is not None:
                return _place_of(error) == place
        return False

    if not fails(data):
        return data, False
    tries, size = 0, len(data) // 2
    while size and tries < _MOST_TRIES:
        at = 0
        while at < len(data) and tries < _MOST_TRIES:
            tries += 1
            without = data[:at] + data[at + size :]
            if fails(without):
                data = without
            else:
                at += size
        size //= 2
    return data, True


@contextmanager
def _silence() -> Iterator[None]:
    """Silence the broker's log, which reports senseless input."""
    logger = logging.getLogger("klog")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def run_beside(
    name: str, seed: int, numbers: range, hangs_after_s: float = HANGS_AFTER_S
) -> list[Finding]:
    """Run ``run`` in a process with limited memory, which is killed if it hangs."""
    context = multiprocessing.get_context(START_METHOD)
    begun = context.RawValue("Q", _STARTING)
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(  # type: ignore[attr-defined]
        target=_work, args=(name, seed, numbers, begun, theirs), daemon=True
    )
    child.start()
    theirs.close()
    last, since = _STARTING, time.monotonic()
    while not ours.poll(min(1, hangs_after_s / 4)):
        now = time.monotonic()
        if begun.value != last:
            last, since = begun.value, now
        elif now - since > (_STARTS_WITHIN_S if last == _STARTING else hangs_after_s):
            child.kill()
            child.join()
            return [_lost(name, seed, last, f"takes more than {hangs_after_s} s")]
    try:
        found: list[Finding] = ours.recv()
    except EOFError:
        child.join()
        return [_lost(name, seed, begun.value, f"ended the process: {child.exitcode}")]
    child.join()
    return found


def _lost(name: str, seed: int, number: int, text: str) -> Finding:
    if number == _STARTING:
        return Finding(name, seed, 0, b"", f"the target could not be loaded: {text}")
    data = load_target(name).make(Random(f"{seed} {name} {number}"))
    return Finding(name, seed, number, data, text, is_alone=False)


def _work(name: str, seed: int, numbers: range, begun: Any, answer: Connection) -> None:
    target = load_target(name)
    target.renew()
    _bound_memory()

    def note(number: int) -> None:
        begun.value = number

    answer.send(run(target, seed, numbers, note))


def _bound_memory() -> None:
    if not sys.platform.startswith("linux"):
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + _MOST_GROWTH_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
