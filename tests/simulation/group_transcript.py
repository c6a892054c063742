"""A consumer group and its coordinator as a dialogue: commands in, their outcome as text.

The real GroupCoordinator runs on a log in memory and a clock that only ``advance`` moves. There is
one group, "g", and its members are named by their processes (m1, m2): like a client a process
remembers the newest member id and generation that it received. The commands are one method each;
tests/simulation/transcripts/README.md lists them.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from klog_broker.coordinator.group.classic.group_machine import GroupSettings
from klog_broker.coordinator.group.classic.member import Joiner
from klog_broker.coordinator.group.commits import Commit, CommitRequest, MemberName
from klog_broker.coordinator.group.coordinator import CoordinatorSettings, GroupCoordinator
from klog_broker.runtime.system.chance import Chance
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import Offset
from pyspark_klog.protocol.apis.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from pyspark_klog.protocol.apis.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from pyspark_klog.records.compression import Codec
from tests.simulation.transcript_lines import (
    deleted_line,
    group_line,
    in_ms,
    in_words,
    joined_line,
    log_lines,
    partition_of,
    subscription,
    synced_line,
)
from tests.support.cluster.coordinators import CoordinatorTime
from tests.support.cluster.state_log import MemoryStateLog

OUTSIDE = "-"
"""The name of a tool, which commits or removes members without being a member."""

_DEFAULTS = {
    "initial-delay": "0s",
    "max-size": "100",
    "commit-timeout": "5s",
    "retention": "1h",
    "retention-check": "10m",
}


class _SpokenLog(MemoryStateLog):
    """Reports each appended record as a line."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def put(self, batch: bytes, *, gap: int = 0) -> Offset:
        end_offset = super().put(batch, gap=gap)
        for line in log_lines(self.batches[-1]):
            self._say(line)
        return end_offset


class _Process:
    """A client process: the member id, the generation and the subscription that it remembers."""

    def __init__(self) -> None:
        self.member_id = ""
        self.generation_id = -1
        self.instance_id: str | None = None
        self.needs_id = False
        self.protocols = "range"
        self.topics = ""


class GroupTalk:
    """``run`` takes a command's words and returns the lines that describe its outcome."""

    def __init__(self) -> None:
        self._chance = Chance(0)
        self._settings = dict(_DEFAULTS)
        self._processes: dict[str, _Process] = {}
        self._lines: list[str] = []
        self._status = ""
        self._waiting: dict[int, str] = {}
        """The requests without a response yet, by number."""
        self._numbers = count(1)
        self._shows_time = False
        self._log = _SpokenLog(self._say)
        self._time = CoordinatorTime(0)
        self._groups: GroupCoordinator | None = None

    def run(self, verb: str, *words: str) -> list[str]:
        """Run one command; ValueError if it does not exist."""
        command = getattr(self, f"do_{verb.replace('-', '_')}", None)
        if command is None:
            raise ValueError(f"no such command: {verb}")
        self._lines, waited = [], set(self._waiting)
        names = [word for word in words if "=" not in word]
        command(*names, given=dict(word.split("=", 1) for word in words if "=" in word))
        self._time.advance(0)
        for number, request in self._waiting.items():
            if number not in waited:
                self._lines.append(f"{request} waits")
        self._show_status()
        return self._lines

    # --- the coordinator -------------------------------------------------------------------------
    def do_settings(self, given: Mapping[str, str]) -> None:
        unknown = given.keys() - _DEFAULTS.keys()
        if unknown or self._groups is not None:
            raise ValueError(f"settings come first, and are of {sorted(_DEFAULTS)}")
        self._settings |= given

    def do_restart(self, given: Mapping[str, str]) -> None:
        """Kill the broker's process and replay the log: waiting requests never get a response."""
        for each in self._waiting.values():
            self._say(f"{each} is never answered")
        self._waiting.clear()
        self._time = CoordinatorTime(self._time.now_ms)
        self._groups = None
        self._coordinator()

    def do_resign(self, given: Mapping[str, str]) -> None:
        self._coordinator().on_resign(self._log.topic_partition)

    def do_lead(self, given: Mapping[str, str]) -> None:
        self._coordinator().on_lead(self._log)

    def do_watermark(self, word: str, given: Mapping[str, str]) -> None:
        """``hold`` stops the high watermark; ``release`` lets it follow the log end again."""
        self._log.follows = {"hold": False, "release": True}[word]
        if self._log.follows:
            self._log.high_watermark = self._log.log_end_offset
            self._time.services.purgatory.check(self._log.topic_partition)

    def do_append(self, word: str, given: Mapping[str, str]) -> None:
        """``works``, or the error with which the log refuses every append from now on."""
        self._log.fails = None if word == "works" else BrokerError(ErrorCode[word])

    def do_advance(self, how_long: str, given: Mapping[str, str]) -> None:
        self._shows_time = True
        self._time.advance(in_ms(how_long))
        self._time.advance(0)
        self._shows_time = False

    # --- members ---------------------------------------------------------------------------------
    def do_join(self, name: str, *flags: str, given: Mapping[str, str]) -> None:
        """Send JoinGroup, and send it again with the member id if the coordinator assigned one.

        The flag ``once`` leaves out the second request. With the flag ``fresh`` the process first
        forgets its member id.
        """
        process = self._processes.setdefault(name, _Process())
        if "fresh" in flags:
            process.member_id = ""
        process.instance_id = given.get("instance", process.instance_id)
        process.protocols = given.get("protocols", process.protocols)
        process.topics = given.get("topics", process.topics)
        self._join(name, process, given)
        self._time.advance(0)
        if process.needs_id and "once" not in flags:
            self._join(name, process, given)

    def _join(self, name: str, process: _Process, given: Mapping[str, str]) -> None:
        process.needs_id = False
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=in_ms(given.get("session", "10s")),
            rebalance_timeout_ms=in_ms(given.get("rebalance", "60s")),
            member_id=process.member_id,
            group_instance_id=process.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=each, metadata=subscription(process.topics))
                for each in process.protocols.split(",")
            ],
        )

        def joined(reply: JoinGroupResponse) -> str:
            if reply.error_code == ErrorCode.NONE:
                process.generation_id = reply.generation_id
            process.needs_id = reply.error_code == ErrorCode.MEMBER_ID_REQUIRED
            if process.needs_id or reply.error_code == ErrorCode.NONE:
                process.member_id = reply.member_id
            return joined_line(reply)

        answer = self._waiter(name, "join", joined)
        self._coordinator().join(request, Joiner(name, "/127.0.0.1", True), answer)

    def do_sync(self, name: str, given: Mapping[str, str]) -> None:
        """Send SyncGroup; a leader assigns partitions to members: ``m1=orders-0``."""
        process = self._processes[name]
        request = SyncGroupRequest(
            group_id="g",
            member_id=process.member_id,
            group_instance_id=process.instance_id,
            generation_id=process.generation_id,
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=self._processes[each].member_id, assignment=what.encode()
                )
                for each, what in given.items()
            ],
        )

        self._coordinator().sync(request, self._waiter(name, "sync", synced_line))

    def do_heartbeat(self, name: str, given: Mapping[str, str]) -> None:
        process = self._processes[name]
        generation_id = int(given.get("generation", process.generation_id))
        error = self._coordinator().heartbeat("g", self._member_name(name), generation_id)
        self._say(f"{name} <- heartbeat {error.name}")

    def do_leave(self, name: str, given: Mapping[str, str]) -> None:
        """Send LeaveGroup; the tool (``-``) removes a static member by its ``instance``."""
        member = MemberName("", given["instance"]) if name == OUTSIDE else self._member_name(name)
        error, results = self._coordinator().leave("g", [member])
        self._say(f"{name} <- leave {[error, *results][-1].name}")

    # --- offsets ---------------------------------------------------------------------------------
    def do_commit(self, name: str, given: Mapping[str, str]) -> None:
        """Commit ``orders-0=42``, in the process's generation or the given ``generation``."""
        offsets = {key: value for key, value in given.items() if key != "generation"}
        commits = [
            Commit(partition_of(key), int(value), leader_epoch=0, metadata="")
            for key, value in offsets.items()
        ]
        known = -1 if name == OUTSIDE else self._processes[name].generation_id
        generation_id = int(given.get("generation", known))
        answer = self._waiter(
            name, "commit", lambda codes: ", ".join(ErrorCode(code).name for code in codes)
        )
        member = MemberName("") if name == OUTSIDE else self._member_name(name)
        self._coordinator().commit(CommitRequest("g", member, generation_id, commits, answer))

    def do_fetch(self, *partitions: str, given: Mapping[str, str]) -> None:
        error, offsets = self._coordinator().committed("g")
        if offsets is None:
            self._say(f"fetch {error.name}")
            return
        for each in partitions:
            found = offsets.get(partition_of(each))
            self._say(f"{each} = {'none' if found is None else found.offset}")

    def do_delete(self, topic: str, given: Mapping[str, str]) -> None:
        """Forget the offsets of a topic that was deleted."""
        self._coordinator().delete_topic_offsets(topic)

    def do_delete_group(self, given: Mapping[str, str]) -> None:
        """Delete the group, as a tool does."""
        answer = self._waiter(OUTSIDE, "delete-group", lambda codes: codes["g"].name)
        self._coordinator().deletions.delete_groups(["g"], answer)

    def do_delete_offsets(self, *partitions: str, given: Mapping[str, str]) -> None:
        """Delete the group's offsets of ``orders-0 orders-1``, as a tool does."""
        answer = self._waiter(OUTSIDE, "delete-offsets", deleted_line)
        self._coordinator().deletions.delete_offsets(
            "g", [partition_of(each) for each in partitions], lambda *told: answer(told)
        )

    # --- inside ----------------------------------------------------------------------------------
    def _coordinator(self) -> GroupCoordinator:
        if self._groups is None:
            given = self._settings
            self._groups = GroupCoordinator(
                CoordinatorSettings(
                    group=GroupSettings(in_ms(given["initial-delay"]), int(given["max-size"])),
                    min_session_timeout_ms=6_000,
                    max_session_timeout_ms=1_800_000,
                    offset_metadata_max_bytes=4_096,
                    commit_timeout_ms=in_ms(given["commit-timeout"]),
                    retention_ms=in_ms(given["retention"]),
                    retention_check_interval_ms=in_ms(given["retention-check"]),
                    codec=Codec.NONE,
                ),
                self._time.services,
                new_member_id=lambda client_id: f"{client_id}-{self._chance.uuid()}",
                num_partitions=lambda: 1,
            )
            self._groups.on_lead(self._log)
            self._time.advance(0)
        return self._groups

    def _member_name(self, name: str) -> MemberName:
        process = self._processes[name]
        return MemberName(process.member_id, process.instance_id)

    def _waiter(self, name: str, what: str, told: Callable[[Any], str]) -> Callable[[Any], None]:
        """Return the callback for a request's response; until it is called the request waits."""
        number = next(self._numbers)
        self._waiting[number] = f"{name}'s {what}"

        def answer(reply: Any) -> None:
            del self._waiting[number]
            self._say(f"{name} <- {what} {told(reply)}")

        return answer

    def _say(self, line: str) -> None:
        self._lines.append(f"{in_words(self._time.now_ms)}: {line}" if self._shows_time else line)

    def _show_status(self) -> None:
        """Add the line of the group's state and its next timer if either has changed."""
        if self._groups is None:
            return
        error, group = self._groups.describe("g")
        status = group_line(error, group)
        for shard in self._groups._runtime.serving():
            if "g" in shard.timers:
                status += f"; timer at {in_words(shard.timers['g'][0])}"
        if status != self._status:
            self._status = status
            self._lines.append(status)
