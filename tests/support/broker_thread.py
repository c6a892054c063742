"""A broker in a thread of the test's process: for tests that look into it or give it a border."""

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from klog_broker.app import BrokerServer
from klog_broker.config import BrokerConfig
from klog_broker.lifecycle.exit_codes import ExitCode
from tests.support.broker_process import KEEPS_RECORDS
from tests.support.raw_client import RawClient

T = TypeVar("T")


class BrokerThread:
    """Serving when the constructor returns; what ``BrokerServer`` takes can be given."""

    def __init__(
        self, data: Path | None, settings: Mapping[str, object] | None = None, **borders: Any
    ) -> None:
        overrides = {"listeners": "PLAINTEXT://127.0.0.1:0"}
        wanted = KEEPS_RECORDS | dict(settings or {})
        overrides |= {name: str(value) for name, value in wanted.items()}
        self.broker = BrokerServer(BrokerConfig.load(None, overrides, data=data), **borders)
        self.broker.start()
        self.exit_code: ExitCode | None = None
        # A test that fails may leave it running: that must not keep the process of the tests alive.
        self._thread = threading.Thread(target=self._serve, name="broker", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self.exit_code = self.broker.serve_forever()

    def __enter__(self) -> "BrokerThread":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> ExitCode:
        """Stop the broker in good order; return its exit code."""
        self.broker.stop()
        self._thread.join(60)
        assert self.exit_code is not None, "the broker did not stop"
        return self.exit_code

    @property
    def is_running(self) -> bool:
        """Whether it has not ended by itself, or by `stop`."""
        return self._thread.is_alive()

    @property
    def address(self) -> tuple[str, int]:
        return self.broker.address

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def client(self, **options: Any) -> RawClient:
        """A new connection."""
        return RawClient(self.address, **options)

    def in_loop(self, call: Any) -> Any:
        """Runs ``call()`` in the broker's thread and returns what it returned."""
        outcome: Future[Any] = Future()

        def run() -> None:
            try:
                outcome.set_result(call())
            except BaseException as error:
                outcome.set_exception(error)

        self.broker.loop.post(run)
        return outcome.result(30)

    def counter(self, name: str) -> int:
        """A counter of the handlers or of the network."""
        broker = self.broker
        return broker.services.requests.counters.get(name, 0) + broker.server.counters[name]
