"""An administrator: creates the run's topics, and goes on creating and deleting others."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tests.simulation.clients.base import Client, Lost, Script, check_code
from tests.simulation.plan import TopicPlan
from tests.simulation.world import Violation

TOPICS = "a topic that was made is there, one that was deleted is not"


class Admin(Client):
    """Creates ``topics``; then, with ``goes_on``, creates and deletes others until the end."""

    _expected: tuple[ErrorCode, ...] = ()

    def __init__(
        self,
        *given: Any,
        topics: tuple[TopicPlan, ...],
        goes_on: bool,
        replicas: int = 1,
        **named: Any,
    ) -> None:
        super().__init__(*given, **named)
        self._replicas = replicas
        self._wanted = list(topics)
        self._goes_on = goes_on
        self._count = 0

    def script(self) -> Script:
        while self._wanted:
            yield from self._create(self._wanted[0])
            del self._wanted[0]
        while self._goes_on and not self.must_end:
            self._count += 1
            topic = TopicPlan(f"own-{self._count}", self.world.between(1, 3), False)
            is_there = yield from self._create(topic)
            yield from self.sleep(self.world.between(0, 500))
            yield from self._delete(topic.name, is_there)
            yield from self.sleep(self.world.between(0, 500))

    def _create(self, topic: TopicPlan, *, was_tried: bool = False) -> Generator[Any, Any, bool]:
        """Create the topic; return whether it surely exists.

        If the response was TOPIC_ALREADY_EXISTS, a failed try may still be rolled back.
        """
        configs = [CreatableTopicConfig(name=name, value=v) for name, v in topic.configs.items()]
        wanted = CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=self._replicas,
            configs=configs,
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=3_000)
        code = yield from self._until_done(
            request,
            CreateTopicsResponse,
            "topics",
            ErrorCode.TOPIC_ALREADY_EXISTS,
            was_tried=was_tried,
        )
        return code is ErrorCode.NONE

    def _delete(self, name: str, is_there: bool) -> Generator[Any, Any, None]:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=3_000)
        yield from self._until_done(
            request,
            DeleteTopicsResponse,
            "responses",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            was_tried=not is_there,
        )

    def _was_refused(self, code: ErrorCode) -> None:
        """Called after an error; the request is sent again."""

    def _until_done(
        self,
        request: Any,
        response_class: Any,
        rows: str,
        done_before: ErrorCode,
        *,
        was_tried: bool = False,
    ) -> Generator[Any, Any, ErrorCode]:
        """Send until it succeeds, over new connections if need be.

        ``done_before`` is the error of a request that an earlier try has carried out.
        """
        while True:
            try:
                yield from self.connect()
                reply = yield from self.call_broker(request, response_class, high=5, waits_ms=3_000)
            except Lost:
                was_tried = True
                continue
            code = check_code(
                self,
                getattr(reply, rows)[0].error_code,
                done_before,
                ErrorCode.REQUEST_TIMED_OUT,
                *self._expected,
            )
            self.note(f"{type(request).__name__} {code.name}")
            if code is done_before and not was_tried:
                raise Violation(TOPICS, f"{self.name} got {code.name} at the first try")
            if code in (ErrorCode.NONE, done_before):
                return code
            self._was_refused(code)
            was_tried = True
            yield from self.sleep(self.world.between(10, 200))
