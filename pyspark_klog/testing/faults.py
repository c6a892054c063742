"""Faults that a test adds to its own broker: errors, delays, lost connections and more.

The commands go through a socket pair that `Broker` opens for its child process, never through the
network. klog_broker/faults/commands.py carries them out.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import threading
import weakref
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from pyspark_klog.errors import ErrorCode, KlogError

_PATIENCE_S = 10.0


class FaultFailed(KlogError):
    """The broker could not add a fault, for the reason in the text."""


class Fault:
    """One fault of a broker. The fault ends with the test, with the broker's process, after its
    last use, with `end`, or with a with statement, whichever comes first."""

    def __init__(self, faults: Faults, number: int, *, is_done: bool = False) -> None:
        self._faults = faults
        self._number = number
        self._fired = 1 if is_done else 0
        self._is_active = not is_done
        self._parts: list[Fault] = []
        """Faults of other brokers, which end with this fault; `fired` includes their uses."""

    @property
    def fired(self) -> int:
        """How often the fault was used so far: the number of requests that it has affected; for a
        fault of `partition`, which cuts the broker off, the number of connections that it has
        closed or refused."""
        if self._is_active:
            self._fired = self._faults._ask({"command": "fired", "id": self._number})
        return self._fired + sum(each.fired for each in self._parts)

    def end(self) -> None:
        """End the fault; `fired` keeps its value."""
        if self._is_active:
            self._is_active = False
            self._faults._active.discard(self)
            try:
                self._fired = self._faults._ask({"command": "end", "id": self._number})
            finally:
                self._end_parts()

    def _forget(self) -> None:
        """Note that the fault has ended with the process of its broker."""
        self._is_active = False
        self._end_parts()

    def _end_parts(self) -> None:
        for each in self._parts:
            # The process of the other broker may have ended by itself.
            with contextlib.suppress(FaultFailed):
                each.end()

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.end()


class Faults:
    """The faults of one `Broker`: ``broker.faults``.

    An API has Kafka's name, such as ``"Produce"`` or ``"JoinGroup"``. ``times`` is the number of
    requests that a fault affects, None for all. If several faults concern a request, a black hole
    comes first, then a delay, then the fault that was added first. In a cluster, requests between
    brokers are affected only if clients never send the API, such as ``"LeaderAndIsr"``.
    """

    def __init__(self, resume: Callable[[], None]) -> None:
        """``resume`` lets the broker's process run again if a test has suspended it."""
        self._resume = resume
        self._socket: socket.socket | None = None
        self._received = b""
        self._unanswered = 0
        """The number of commands whose responses were not received yet."""
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._active: set[Fault] = set()
        _all.add(self)

    # --- faults of requests ----------------------------------------------------------------------
    def answer(
        self,
        api: str,
        error: str | ErrorCode,
        *,
        topic: str | None = None,
        partition: int | None = None,
        times: int | None = 1,
    ) -> Fault:
        """Answer requests with an error, without carrying them out.

        With ``topic``, or ``topic`` and ``partition``, only these get the error; the rest of a
        request is carried out. A Produce request with acks=0 gets a closed connection.

        :raises ValueError: if there is no such error code
        :raises FaultFailed: if there is no such API, or if its responses have no error of a topic
            or partition
        """
        try:
            code = ErrorCode[error] if isinstance(error, str) else ErrorCode(error)
        except KeyError:
            raise ValueError(f"Kafka has no error code {error!r}") from None
        return self._add(
            "answer", api=api, error=code.name, topic=topic, partition=partition, times=times
        )

    def delay(self, api: str, ms: int, *, times: int | None = None) -> Fault:
        """Carry requests out only ``ms`` milliseconds after they have arrived. Later requests of
        the same connection wait, too."""
        return self._add("delay", api=api, ms=ms, times=times)

    def disconnect(
        self, api: str, *, before: bool = False, after: bool = False, times: int | None = 1
    ) -> Fault:
        """Close the connection in place of a response: ``before=True`` before a request is carried
        out, ``after=True`` after it.

        :raises ValueError: unless exactly one of ``before`` and ``after`` is true
        """
        if before == after:
            raise ValueError(
                "expected either before=True (disconnect before the request is executed) or "
                "after=True (execute the request, and disconnect without a response)"
            )
        return self._add(
            "disconnect-before" if before else "disconnect-after", api=api, times=times
        )

    def blackhole(self, client_id: str) -> Fault:
        """Neither carry out nor answer any request of the clients with this ``client.id``; their
        connections stay open. When the fault ends, the broker closes those that wait."""
        return self._add("blackhole", client_id=client_id)

    # --- faults of groups and transactions -------------------------------------------------------
    def expire(self, group: str, member: str) -> Fault:
        """Remove a member from a group now, as at the end of its session. ``member`` is a member
        id, a ``client.id`` or a ``group.instance.id``.

        :raises FaultFailed: if the group has no such member, or several
        """
        return self._do("expire", group=group, member=member)

    def rebalance(self, group: str) -> Fault:
        """Start a rebalance of a group now: all its members must join again.

        :raises FaultFailed: if the group has no members
        """
        return self._do("rebalance", group=group)

    def abort(self, transactional_id: str) -> Fault:
        """Abort a transaction now, as at its time-out: its producer is fenced.

        :raises FaultFailed: if the id has no ongoing transaction
        """
        return self._do("abort", transactional_id=transactional_id)

    # --- the end of faults -----------------------------------------------------------------------
    def end(self) -> None:
        """End all faults of the broker."""
        for each in list(self._active):
            each.end()

    # --- the channel to the broker's process -----------------------------------------------------
    def _open(self) -> socket.socket:
        """Open the channel; return the end for the broker's process, which the caller closes."""
        self._close()
        ours, theirs = socket.socketpair()
        ours.settimeout(_PATIENCE_S)
        self._socket, self._received, self._unanswered = ours, b"", 0
        return theirs

    def _close(self) -> None:
        """Forget the faults of a process that has ended."""
        active, self._active = self._active, set()
        for each in active:
            each._forget()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _settle(self) -> None:
        """End the faults before the broker's process ends, so that `Fault.fired` keeps its
        value. Does not fail if the process has ended by itself."""
        for each in list(self._active):
            with contextlib.suppress(FaultFailed):
                each.end()

    def _add(self, action: str, **fields: Any) -> Fault:
        number = next(self._numbers)
        self._ask({"command": "add", "id": number, "action": action, **fields})
        fault = Fault(self, number)
        self._active.add(fault)
        return fault

    def _do(self, command: str, **fields: Any) -> Fault:
        """Cause something once; the returned fault has been used and has ended."""
        self._ask({"command": command, **fields})
        return Fault(self, next(self._numbers), is_done=True)

    def _cut_off(self, others: Iterable[Faults]) -> Fault:
        """Cut this broker off from ZooKeeper and from the brokers with the faults ``others``."""
        address = self._ask({"command": "address"})
        fault = self._add("cut", address=None)
        try:
            for each in others:
                fault._parts.append(each._add("cut", address=address))
        except FaultFailed:
            fault.end()
            raise
        return fault

    def _move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Elect another leader; this broker must be the controller."""
        fields = {"topic": topic, "partition": partition, "broker": broker_id}
        self._ask({"command": "move-leader", **fields})

    def _ask(self, command: dict[str, Any]) -> Any:
        if self._socket is None:
            raise FaultFailed(
                "the broker has no faults: it is not running, or another Python runs it (python=)"
            )
        with self._lock:
            try:
                self._unanswered += 1
                self._socket.sendall(json.dumps(command).encode() + b"\n")
                response = json.loads(self._receive_response(self._socket))
            except TimeoutError:
                raise FaultFailed(
                    f"the broker did not react to a fault within {_PATIENCE_S:g} s; is it paused?"
                ) from None
            except OSError as error:
                raise FaultFailed(f"the broker's process has ended: {error}") from error
        if "error" in response:
            raise FaultFailed(response["error"])
        return response["result"]

    def _receive_response(self, channel: socket.socket) -> bytes:
        """Return the response to the last command. Responses to earlier commands, which have come
        too late, are dropped."""
        while True:
            line, end, rest = self._received.partition(b"\n")
            if not end:
                some = channel.recv(65_536)
                if not some:
                    raise ConnectionResetError("the fault channel is closed")
                self._received += some
                continue
            self._received = rest
            self._unanswered -= 1
            if self._unanswered == 0:
                return line


_all: weakref.WeakSet[Faults] = weakref.WeakSet()


def end_all_faults() -> None:
    """End all faults of all brokers that this process has started, and resume the brokers that are
    suspended."""
    everything = list(_all)
    for each in everything:
        each._resume()
    for each in everything:
        each._settle()
