"""A broker with the interface of testcontainers' ``KafkaContainer``, without a container."""

from types import TracebackType
from typing import Any

from pyspark_klog.testing.broker import Broker


class KlogContainer:
    """A broker in place of ``testcontainers.kafka.KafkaContainer``: it starts in half a second, and
    needs no Docker. Use it in a with statement, or call `start` and `stop`.

    Settings are the broker's own, with underscores for dots. `broker` is the broker itself, with
    its `faults`.
    """

    def __init__(self, **settings: Any) -> None:
        self.broker = Broker(**settings)

    def start(self, timeout: float = 60.0) -> "KlogContainer":
        """Start the broker, wait up to ``timeout`` seconds until it accepts clients, and return
        this object.

        :raises BrokerFailed: if the broker does not start in time
        """
        self.broker._start_timeout_s = timeout
        self.broker.start()
        return self

    def get_bootstrap_server(self) -> str:
        """Return ``host:port``, for the clients' setting ``bootstrap.servers``."""
        return self.broker.bootstrap_servers

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """End the broker, with SIGKILL if ``force``; remove its data if ``delete_volume``."""
        if force:
            self.broker.kill()
        else:
            self.broker.stop()
        if delete_volume:
            self.broker.close()

    def __enter__(self) -> "KlogContainer":
        return self.start()

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.stop()
