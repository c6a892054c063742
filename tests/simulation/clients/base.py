"""A client: the real client's connection over a link of the simulated network, and a script.

A script is a generator that sends requests with ``send``, and yields the longest time that it waits
(milliseconds from now) or None. The script resumes at an event of its connection, or when the time
is over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark_klog.client.errors import ConnectionFailed, RequestTimedOut
from pyspark_klog.client.transport.connection import Call, ClientConnectionState, Connection
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.message import Request, Response
from tests.simulation.network import Link
from tests.simulation.world import Event, Violation, World

if TYPE_CHECKING:
    from tests.simulation.history import History
    from tests.simulation.machine import Machine

R = TypeVar("R", bound=Response)
Script = Generator[int | None, None, None]

ANSWERED_WITHIN_MS = 6_000
"""The time for a response, beyond the wait that the request allows. A later one is a fault."""

WAITS = "every wait ends"
WAKING = "whoever waits is woken"

# The disk has too little space, or none.
_DISK_IS_FULL = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR)


class Lost(Exception):
    """The connection is lost, with all responses that the script waited for."""


class Client(ABC):
    """A client with one connection at a time. Subclasses implement ``script``."""

    def __init__(
        self, world: World, machine: Machine, history: History, number: int, kind: str
    ) -> None:
        self.world = world
        self.machine = machine
        self.history = history
        self.name = f"{kind}{number}"
        self.is_over = False
        self.must_end = False
        """No more faults come: the script finishes its work and ends."""
        self.dials = 0
        self._address = f"10.0.0.{number + 10}"
        self._link: Link | None = None
        self._connection: Connection | None = None
        self._timer: Event | None = None
        self._deadline: Event | None = None
        self._is_running = False
        self._script = self._guarded()

    def start_script(self) -> None:
        """Run the script up to its first wait."""
        self._resume_script()

    @abstractmethod
    def script(self) -> Script:
        """The client's work. Each wait may raise Lost, after which the script starts again."""

    def note(self, text: str) -> None:
        self.world.note(f"{self.name} {text}")

    # --- for scripts -----------------------------------------------------------------------------
    def version_of(self, response_class: type[Response], low: int, high: int) -> int:
        """The newest version that client and broker support; Lost without a connection."""
        if self._connection is None or not self.is_connected:
            raise Lost
        return self._connection.version(response_class.api_key, low, high)

    @property
    def in_flight(self) -> int:
        return 0 if self._connection is None else self._connection.in_flight

    def connect(self) -> Script:
        """Wait until a connection is ready, and open it if necessary."""
        while not self.is_connected:
            if self._connection is None:
                self._dial()
            yield None
            if self._connection is None:
                yield from self.sleep(self.world.between(10, 200))

    @property
    def is_connected(self) -> bool:
        return (
            self._connection is not None and self._connection.state is ClientConnectionState.READY
        )

    @property
    def resets_when_late(self) -> bool:
        """Whether to reset a connection whose response is late: it delivers nothing more then."""
        return False

    @property
    def may_be_late(self) -> bool:
        """Whether the lack of a response is allowed at present."""
        return self._link is None or self._link.was_stalled

    @property
    def was_stalled(self) -> bool:
        """Whether the connection has stalled, or there is none."""
        return self._link is None or self._link.was_stalled

    def sleep(self, for_ms: int) -> Script:
        """Wait for ``for_ms``, even if events occur."""
        until_ms = self.world.now_ms + for_ms
        while self.world.now_ms < until_ms:
            yield until_ms - self.world.now_ms

    def send(
        self,
        request: Request,
        response_class: type[R],
        *,
        low: int = 0,
        high: int | None = None,
        waits_ms: int = 0,
        expects_response: bool = True,
    ) -> Call[R]:
        """Send a request; ``waits_ms`` is how long it allows the broker to take."""
        connection = self._connection
        if connection is None or connection.state is not ClientConnectionState.READY:
            raise Lost
        version = connection.version(response_class.api_key, low, high)
        call = connection.send(
            request,
            response_class,
            version,
            self.world.now_ms,
            timeout_ms=waits_ms,
            expects_response=expects_response,
        )
        self._pump()
        return call

    def call_broker(
        self, request: Request, response_class: type[R], **options: Any
    ) -> Generator[Any, Any, R]:
        """Send a request and wait for its response; Lost if there is none."""
        call = self.send(request, response_class, **options)
        while not call.is_done:
            yield None
        if call.error is not None:
            raise Lost
        return call.result()

    def choose_machine(self) -> Machine:
        """The machine for the next connection."""
        return self.machine

    def go_to(self, _broker_id: int) -> Script:
        """Go on at this broker; where there is only one broker, do nothing."""
        yield from ()

    def is_current(self) -> bool:
        """Whether the last response came from the coordinator that was elected last.

        A broker that has not learned of the election yet may still answer.
        """
        return True

    def hang_up(self) -> None:
        """Close the connection."""
        if self._link is not None:
            self._link.close()
        self._lose("closed by the client")

    # --- events of the link -----------------------------------------------------------------------
    def connected(self) -> None:
        assert self._connection is not None
        self._connection.connected(self.world.now_ms)
        self._pump()
        self._resume_script()

    def received(self, data: bytes) -> None:
        connection = self._connection
        if connection is None:
            return
        position = 0
        while position < len(data):
            buffer = connection.receive_buffer()
            count = min(len(buffer), len(data) - position)
            buffer[:count] = data[position : position + count]
            buffer.release()
            position += count
            connection.received(count)
        if connection.state is ClientConnectionState.CLOSED:
            raise Violation("answers can be read", f"{self.name}: {connection.error}")
        self._pump()
        self._resume_script()

    def closed(self, why: str) -> None:
        self._lose(why)
        self._resume_script()

    # --- inside ----------------------------------------------------------------------------------
    def _dial(self) -> None:
        self.machine = self.choose_machine()
        self.dials += 1
        self._connection = Connection(
            "the broker",
            client_id=self.name,
            request_timeout_ms=ANSWERED_WITHIN_MS,
            max_response_bytes=1 << 24,
        )
        port = 40_000 + self.dials
        peer = _Peer(self)
        name = f"{self.name}/{self.dials}"
        self._link = self.machine.network.dial(name, (self._address, port), peer)
        peer.link = self._link

    def _pump(self) -> None:
        connection, link = self._connection, self._link
        assert connection is not None and link is not None
        while (data := connection.to_send()) is not None:
            piece = bytes(data)
            connection.sent(len(piece))
            link.send(piece)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        due_ms = connection.next_deadline_ms()
        if due_ms is not None:
            self._deadline = self.world.after(due_ms - self.world.now_ms, self._late)

    def _late(self) -> None:
        connection, link = self._connection, self._link
        if connection is None or link is None:
            return
        connection.on_deadline(self.world.now_ms)
        if connection.state is not ClientConnectionState.CLOSED:
            self._pump()
            return
        assert isinstance(connection.error, RequestTimedOut)
        if not self.may_be_late:
            raise Violation(WAITS, f"{self.name}: {connection.error}")
        if self.resets_when_late:
            link.break_off()
        else:
            link.close()
        self._lose("late")
        self._resume_script()

    def _lose(self, why: str) -> None:
        connection, self._connection, self._link = self._connection, None, None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if connection is not None:
            connection.lost(ConnectionFailed(why))

    def _guarded(self) -> Script:
        while True:
            try:
                yield from self.script()
                break
            except Lost:
                continue
        if self._link is not None:
            self._link.close()
            self._lose("the end")

    def _resume_script(self) -> None:
        if self.is_over or self._is_running:
            return
        self._is_running = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            wait_ms = next(self._script)
        except StopIteration:
            self.is_over = True
            self.note("is over")
            return
        finally:
            self._is_running = False
        if wait_ms is not None:
            self._timer = self.world.after(max(wait_ms, 0), self._resume_script)


class _Peer:
    """Passes a link's events on to its client, until the client gives the link up."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.link: Link | None = None

    @property
    def _counts(self) -> bool:
        return self.link is not None and self._client._link is self.link

    def connected(self) -> None:
        if self._counts:
            self._client.connected()

    def received(self, data: bytes) -> None:
        if self._counts:
            self._client.received(data)

    def closed(self, why: str) -> None:
        if self._counts:
            self._client.closed(why)


def check_code(client: Client, number: int, *allowed: ErrorCode) -> ErrorCode:
    """A response's error code, which must be one of the expected ones."""
    code = ErrorCode(number)
    if code is ErrorCode.NONE or code in allowed or code in _DISK_IS_FULL:
        return code
    raise Violation("errors are expected ones", f"{client.name} got {code.name}")
