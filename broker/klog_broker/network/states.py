"""The states of a connection, and what may happen in each: one row a state.

docs/connections.md is printed from these rows.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class State:
    """What a connection does next, and what it may do. Compared by identity."""

    name: str
    meaning: str
    receives: bool
    """Whether bytes are received, as far as there is room for them."""
    sets_aside: bool
    """Whether what is received then is only kept, for nothing may be begun before something else
    has happened."""
    parses: bool
    """Whether requests are begun."""
    resumes: bool
    """Whether parsing goes on when an answer was made, or bytes have left."""


QUIET = State(
    "quiet",
    "nothing is held, worked on or unsent: a request that comes is received and begun at once, or"
    " received and planned together with those of other connections",
    receives=True,
    sets_aside=False,
    parses=True,
    resumes=False,
)
READING = State(
    "reading",
    "all that came whole is begun; requests may be worked on, answers unsent, a part of a request"
    " here",
    receives=True,
    sets_aside=False,
    parses=True,
    resumes=False,
)
WAITING = State(
    "waiting",
    "a whole request is here that may be begun only when answers are made or have left",
    receives=True,
    sets_aside=True,
    parses=True,
    resumes=True,
)
YIELDED = State(
    "yielded",
    "a whole request is here, but the turn's share of requests is used up: it is begun in the next"
    " turn",
    receives=True,
    sets_aside=True,
    parses=True,
    resumes=False,
)
PLANNED = State(
    "planned",
    "what is here begins with Produce and is left to the turn's plan",
    receives=False,
    sets_aside=False,
    parses=False,
    resumes=False,
)
ENDED = State(
    "ended",
    "the client sends no more: what it sent is served, then the connection is closed",
    receives=False,
    sets_aside=False,
    parses=True,
    resumes=True,
)
CLOSING = State(
    "closing",
    "an answer is to close the connection: those before it still leave, nothing more is begun",
    receives=False,
    sets_aside=False,
    parses=False,
    resumes=False,
)
CLOSED = State(
    "closed",
    "the socket is closed, answers that still come are dropped",
    receives=False,
    sets_aside=False,
    parses=False,
    resumes=False,
)

STATES = (QUIET, READING, WAITING, YIELDED, PLANNED, ENDED, CLOSING, CLOSED)
FIRST = QUIET

TRANSITIONS: dict[State, dict[State, str]] = {
    QUIET: {
        READING: "bytes have come, or the end of the stream",
        CLOSED: "idle for too long, receiving failed, or the broker stops",
    },
    READING: {
        QUIET: "all is begun, answered and sent",
        WAITING: "a request has to wait for earlier answers",
        YIELDED: "the turn's share of requests is used up",
        PLANNED: "Produce has come, and a plan takes it",
        ENDED: "the client sends no more",
        CLOSING: "an answer closes the connection",
        CLOSED: "bad bytes, a broken socket, idle for too long, or the broker stops",
    },
    WAITING: {
        READING: "all that is here is begun",
        YIELDED: "the turn's share of requests is used up",
        PLANNED: "what is next is Produce, and a plan takes it",
        ENDED: "the client sends no more",
        CLOSING: "an answer closes the connection",
        CLOSED: "bad bytes, a broken socket, or the broker stops",
    },
    YIELDED: {
        READING: "all that is here is begun",
        WAITING: "a request has to wait for earlier answers",
        PLANNED: "what is next is Produce, and a plan takes it",
        ENDED: "the client sends no more",
        CLOSING: "an answer closes the connection",
        CLOSED: "bad bytes, a broken socket, or the broker stops",
    },
    PLANNED: {
        READING: "the plan is over: what it left is parsed",
        CLOSING: "an answer closes the connection",
        CLOSED: "a broken socket, a log that failed, or the broker stops",
    },
    ENDED: {
        CLOSING: "an answer closes the connection",
        CLOSED: "all is answered and sent, or nobody is left to be answered",
    },
    CLOSING: {
        CLOSED: "the answers before have left, or a broken socket, or the broker stops",
    },
    CLOSED: {},
}
"""From each state to those that may follow, and why."""
