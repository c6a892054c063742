"""The states of a connection, and what a connection may do in each.

docs/connections.md is generated from this module.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class ConnectionState:
    """A state of a connection, and what the connection may do in this state.

    Compared by identity.
    """

    name: str
    meaning: str
    receives: bool
    """Whether bytes are received from the socket, as long as the inbox (the connection's received
    bytes) is not full."""
    sets_aside: bool
    """Whether bytes go to the connection's own buffer, not to the shared receive arena, if they are
    received while earlier bytes of the same event-loop turn are unparsed, because no further
    request may be passed to a handler for now: earlier responses are outstanding or unsent, or the
    connection has reached its limit of requests for this turn."""
    parses: bool
    """Whether received bytes are parsed, and their requests passed to handlers."""
    resumes: bool
    """Whether parsing continues once a response is complete, or response bytes are sent."""


QUIET = ConnectionState(
    "quiet",
    "no bytes are held, no request is unanswered, no response is unsent: the next request is begun"
    " as soon as it is received, or received and planned together with other connections' requests",
    receives=True,
    sets_aside=False,
    parses=True,
    resumes=False,
)
READING = ConnectionState(
    "reading",
    "every complete received request is begun; some may be unanswered, responses may be unsent, and"
    " a part of the next request may be held",
    receives=True,
    sets_aside=False,
    parses=True,
    resumes=False,
)
WAITING = ConnectionState(
    "waiting",
    "a complete request is held; it may be begun only after earlier responses are made or sent",
    receives=True,
    sets_aside=True,
    parses=True,
    resumes=True,
)
YIELDED = ConnectionState(
    "yielded",
    "a complete request is held, but this connection has begun as many requests as a turn allows:"
    " the request is begun in the next turn",
    receives=True,
    sets_aside=True,
    parses=True,
    resumes=False,
)
PLANNED = ConnectionState(
    "planned",
    "the held bytes begin with a Produce request, which waits for the turn's plan",
    receives=False,
    sets_aside=False,
    parses=False,
    resumes=False,
)
ENDED = ConnectionState(
    "ended",
    "the client has ended its stream: the requests that it sent are served, then the connection is"
    " closed",
    receives=False,
    sets_aside=False,
    parses=True,
    resumes=True,
)
ENDING = ConnectionState(
    "ending",
    "the broker stops: the received requests are served, no more bytes are received, then the"
    " connection is closed",
    receives=False,
    sets_aside=False,
    parses=True,
    resumes=True,
)
CLOSING = ConnectionState(
    "closing",
    "a request is answered by closing the connection: the responses before it are still sent, no"
    " further request is begun",
    receives=False,
    sets_aside=False,
    parses=False,
    resumes=False,
)
CLOSED = ConnectionState(
    "closed",
    "the socket is closed; later responses are dropped",
    receives=False,
    sets_aside=False,
    parses=False,
    resumes=False,
)

STATES = (QUIET, READING, WAITING, YIELDED, PLANNED, ENDED, ENDING, CLOSING, CLOSED)
FIRST = QUIET

TRANSITIONS: dict[ConnectionState, dict[ConnectionState, str]] = {
    QUIET: {
        READING: "bytes or the end of the stream were received",
        ENDING: "the broker stops",
        CLOSED: "idle for too long, receiving failed, or the broker stops",
    },
    READING: {
        QUIET: "every request is begun and answered, and every response is sent",
        WAITING: "a request must wait for earlier responses",
        YIELDED: "the turn's share of requests is used up",
        PLANNED: "a Produce request was received, and a plan takes it",
        ENDED: "the client has ended its stream",
        ENDING: "the broker stops",
        CLOSING: "a request is answered by closing the connection",
        CLOSED: "bad bytes, a broken socket, idle for too long, or the broker stops",
    },
    WAITING: {
        READING: "every complete request is begun",
        YIELDED: "the turn's share of requests is used up",
        PLANNED: "the next request is Produce, and a plan takes it",
        ENDED: "the client has ended its stream",
        ENDING: "the broker stops",
        CLOSING: "a request is answered by closing the connection",
        CLOSED: "bad bytes, a broken socket, or the broker stops",
    },
    YIELDED: {
        READING: "every complete request is begun",
        WAITING: "a request must wait for earlier responses",
        PLANNED: "the next request is Produce, and a plan takes it",
        ENDED: "the client has ended its stream",
        ENDING: "the broker stops",
        CLOSING: "a request is answered by closing the connection",
        CLOSED: "bad bytes, a broken socket, or the broker stops",
    },
    PLANNED: {
        READING: "the plan is over: the requests that it left are parsed",
        CLOSING: "a request is answered by closing the connection",
        CLOSED: "a broken socket, a log that failed, or the broker stops",
    },
    ENDED: {
        ENDING: "the broker stops",
        CLOSING: "a request is answered by closing the connection",
        CLOSED: "every response is sent, or the client left while its request waited",
    },
    ENDING: {
        CLOSING: "a request is answered by closing the connection",
        CLOSED: "every response is sent, a broken socket, or the shutdown's time limit",
    },
    CLOSING: {
        CLOSED: "the responses before it are sent, a broken socket, or the broker stops",
    },
    CLOSED: {},
}
"""For each state, the states that may follow it, each with the reasons for the change."""
