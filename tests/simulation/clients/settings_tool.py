"""An administrator who changes a broker setting again and again while the broker runs."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from pyspark_klog.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.simulation.clients.base import Client, Script, check_code
from tests.simulation.world import Violation

KEPT = "a setting that was given to the broker is kept"
FOLLOWED = "logs have the settings in force"

_BROKER = 4
_SET, _DELETE = 0, 1
_NAME, _OF_TOPICS, _DEFAULT = "log.index.interval.bytes", "index.interval.bytes", "4096"
_FOLLOWS_WITHIN_MS = 200


class SettingsTool(Client):
    """Sets one setting; ``_possible`` are its possible values: two after a lost response."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._possible = {_DEFAULT}

    @property
    def resets_when_late(self) -> bool:
        # Without the reset a delayed request could overwrite the changes that follow it.
        return True

    def script(self) -> Script:
        while not self.must_end:
            yield from self.connect()
            yield from self._change()
            yield from self._look()
            yield from self.sleep(self.world.between(0, 2_000))
        yield from self.connect()
        yield from self._look()

    def _change(self) -> Script:
        is_deleted = self.world.chance(0.2)
        value = _DEFAULT if is_deleted else str(self.world.between(0, 5_000))
        change = AlterableConfig(
            name=_NAME,
            config_operation=_DELETE if is_deleted else _SET,
            value=None if is_deleted else value,
        )
        resource = AlterConfigsResource(resource_type=_BROKER, resource_name="0", configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        before = self._possible
        self._possible = before | {value}
        reply = yield from self.call_broker(
            request, IncrementalAlterConfigsResponse, waits_ms=3_000
        )
        code = check_code(self, reply.responses[0].error_code)
        self._possible = {value} if code is ErrorCode.NONE else before
        self.note(f"{_NAME}={value} {code.name}")
        self.machine.has_told("settings")

    def _look(self) -> Script:
        value = yield from self._told()
        if value not in self._possible:
            expected = " or ".join(sorted(self._possible))
            raise Violation(KEPT, f"{_NAME} is {value}, and was to be {expected}")
        self._possible = {value}
        lives = self.machine.lives
        yield from self.sleep(_FOLLOWS_WITHIN_MS)
        broker = self.machine.broker
        if broker is None or self.machine.lives != lives:
            return
        topics = broker.services.metadata.image.topics
        for log in self.machine.logs():
            topic = topics.get(log.topic_partition.topic)
            if topic is None or _OF_TOPICS in topic.configs:
                continue
            if str(log.config.index_interval_bytes) != value:
                text = f"{log.topic_partition} has {log.config.index_interval_bytes}, not {value}"
                raise Violation(FOLLOWED, text)

    def _told(self) -> Generator[Any, Any, str]:
        resource = DescribeConfigsResource(
            resource_type=_BROKER, resource_name="0", configuration_keys=[_NAME]
        )
        request = DescribeConfigsRequest(resources=[resource])
        reply = yield from self.call_broker(request, DescribeConfigsResponse, low=1)
        (row,) = reply.results[0].configs
        return str(row.value)
