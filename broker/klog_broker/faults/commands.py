"""Carries out the commands that a test sends to its own broker.

A command is a JSON object in one line, and so is its response: ``{"result": ...}``, or
``{"error": "..."}`` if the command cannot be carried out. The fields of each command are in
pyspark_klog/testing/faults.py, which sends them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from klog_broker.controller.zookeeper.controller import Controller
from klog_broker.controller.zookeeper.controller_requests import ElectionErrors
from klog_broker.coordinator.group.commits import MemberName
from klog_broker.faults.fault import FaultRefused, parse_fault
from klog_broker.faults.interception import Interception
from klog_broker.faults.isolation import Isolation
from klog_broker.network.server import Server
from klog_broker.parts import BrokerParts
from klog_broker.runtime.net.parent_channel import ParentChannel
from klog_broker.runtime.net.poller import READABLE
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import UUID, BrokerId, TopicPartition

_LATER = object()
"""The result of a command that responds later."""
_CLIENT_ID_OF_BROKER = re.compile(r"broker-\d+")


class FaultCommands:
    """Receives and carries out the commands of the process that has started this broker, a test.
    Only the event loop's thread may call the methods."""

    def __init__(
        self,
        channel: ParentChannel,
        server: Server,
        services: BrokerParts,
        isolation: Isolation,
        controller: Controller | None = None,
    ) -> None:
        """``isolation`` has the cuts of the broker's own connections; ``controller`` is None for a
        standalone broker."""

        def name_of(topic_id: UUID) -> str | None:
            topic = services.metadata.image.topic_by_id(topic_id)
            return None if topic is None else topic.name

        def is_brokers_client(client_id: str) -> bool:
            is_brokers = _CLIENT_ID_OF_BROKER.fullmatch(client_id) is not None
            return is_brokers and services.config.joins_cluster

        self._channel = channel
        self._services = services
        self._controller = controller
        self._loop = services.loop
        self._requests = Interception(server, services.loop, name_of, is_brokers_client)
        self._isolation = isolation
        self._commands: dict[str, Callable[[dict[str, Any]], Any]] = {
            "add": self._add,
            "end": lambda command: self._kind_of(command).end(command["id"]),
            "fired": lambda command: self._kind_of(command).fired(command["id"]),
            "address": lambda _: services.advertised[services.config.inter_broker_listener],
            "expire": self._expire,
            "rebalance": self._rebalance,
            "abort": self._abort,
            "move-leader": self._move_leader,
        }

    def serve(self) -> None:
        """Carry out commands from now on, until the other process ends."""
        self._loop.register(self._channel.fileno(), READABLE, lambda _: self._on_readable())

    def _on_readable(self) -> None:
        lines = self._channel.receive_lines()
        if lines is None:
            self._loop.unregister(self._channel.fileno())
            self._channel.close()
            self._requests.end_all()
            self._isolation.end_all()
            return
        for line in lines:
            response = self._response(line)
            if response is not None:
                self._respond(response)

    def _respond(self, response: dict[str, Any]) -> None:
        self._channel.send_line(json.dumps(response))

    def _response(self, line: str) -> dict[str, Any] | None:
        """Carry out a command; return its response, or None if the response comes later."""
        try:
            command = json.loads(line)
            result = self._commands[command["command"]](command)
            return None if result is _LATER else {"result": result}
        except FaultRefused as error:
            return {"error": str(error)}
        except Exception as error:
            # A bug, or a command of another version: the broker must serve on.
            self._services.requests.bugs.report("a fault", error)
            return {"error": f"the broker could not carry this out: {error!r}"}

    def _add(self, command: dict[str, Any]) -> None:
        if command["action"] == "cut":
            host_and_port = command["address"]
            address = None if host_and_port is None else (host_and_port[0], host_and_port[1])
            self._isolation.add(command["id"], address)
        else:
            self._requests.add(command["id"], parse_fault(command))

    def _kind_of(self, command: dict[str, Any]) -> Interception | Isolation:
        """Return the object that has the fault of a command."""
        return self._isolation if self._isolation.has(command["id"]) else self._requests

    # --- groups and transactions -----------------------------------------------------------------
    def _expire(self, command: dict[str, Any]) -> None:
        group_id, wanted = command["group"], command["member"]
        error, group = self._services.groups.describe(group_id)
        members = () if group is None else group.members.values()
        found = [each for each in members if wanted in (each.member_id, each.client_id)] or [
            each for each in members if wanted == each.group_instance_id
        ]
        if error is not ErrorCode.NONE:
            raise FaultRefused(f"this broker does not serve the group {group_id!r}: {error.name}")
        if len(found) != 1:
            ids = ", ".join(f"{each.member_id} (client {each.client_id})" for each in members)
            raise FaultRefused(
                f"the group {group_id!r} has {len(found)} members {wanted!r}; its members:"
                f" {ids or 'none'}"
            )
        self._services.groups.leave(group_id, [MemberName(found[0].member_id)])

    def _rebalance(self, command: dict[str, Any]) -> None:
        group_id = command["group"]
        error = self._services.groups.rebalance(group_id)
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            raise FaultRefused(f"the group {group_id!r} has no members")
        if error is not ErrorCode.NONE:
            raise FaultRefused(f"this broker does not serve the group {group_id!r}: {error.name}")

    def _abort(self, command: dict[str, Any]) -> None:
        transactional_id = command["transactional_id"]
        error = self._services.transactions.abort_ongoing(transactional_id)
        if error in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
            raise FaultRefused(f"{transactional_id!r} has no ongoing transaction")
        if error is not ErrorCode.NONE:
            raise FaultRefused(
                f"this broker does not serve the transactional id {transactional_id!r}:"
                f" {error.name}"
            )

    # --- leaders ---------------------------------------------------------------------------------
    def _move_leader(self, command: dict[str, Any]) -> object:
        if self._controller is None:
            raise FaultRefused("a standalone broker cannot move a leader")
        partition = TopicPartition(command["topic"], command["partition"])
        leader = BrokerId(command["broker"])

        def done(errors: ElectionErrors | ErrorCode) -> None:
            error = errors if isinstance(errors, ErrorCode) else errors[partition]
            if error in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                self._respond({"result": None})
            elif error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE:
                self._respond({"error": f"broker {leader} is no in-sync replica of {partition}"})
            else:
                self._respond({"error": f"{partition} got no new leader: {error.name}"})

        self._controller.elect_leaders([partition], done, unclean=False, leader=leader)
        return _LATER
