"""Why a query of the exactly-once soak failed: a fault, a refusal of the sink, or Spark."""

from enum import Enum


class Failure(Enum):
    """The cause of a failure, by its text. The first cause that fits counts."""

    OTHER_ROWS = "refused: the micro-batch is split otherwise than before"
    ENDED_EARLY = "refused: a transaction timed out or was fenced before its end"
    CUT_SHORT = "the driver ended some transactions of a micro-batch, and could not end the next"
    LOST = "a process was killed"
    UNREACHED = "the broker was not there"
    BROKEN_JVM = "Spark: two first starts wrote one map at once, and no task can be sent"
    UNKNOWN = "unknown"


_WORDS: dict[Failure, tuple[str, ...]] = {
    Failure.OTHER_ROWS: (
        "the batch was cut into other tasks then",
        "it was written before, by run",
    ),
    Failure.ENDED_EARLY: (
        "is not open any more",
        "its transaction was open for",
        "another attempt took its transactional id",
    ),
    Failure.CUT_SHORT: (
        "transactions of tasks were committed, and committing the next one failed",
    ),
    Failure.LOST: (
        "Python worker exited unexpectedly",
        "ExecutorLostFailure",
        "EOFException",
        "EOFError",
        "Connection reset",
        "Broken pipe",
    ),
    Failure.BROKEN_JVM: ("Illegal size ",),
    Failure.UNREACHED: ("did not succeed in time", "did not answer", "max.block.ms"),
    Failure.UNKNOWN: (),
}


def failure_of(text: str) -> Failure:
    """The cause that a query's error text names."""
    for failure, words in _WORDS.items():
        if any(word in text for word in words):
            return failure
    return Failure.UNKNOWN
