"""A controller's reads and watches when reading is interrupted."""

from collections.abc import Callable
from typing import Any

from klog_broker.controller.zookeeper.znode_reader import Reader, Subject, ZnodeChange
from klog_broker.metadata.zookeeper.conversation import Conversation
from klog_broker.runtime.zookeeper.sessions import Node, NoNode, Stat

DATA = b'{"version":1,"partitions":{"0":[2]}}'


class Answers:
    """A session that answers when the test does."""

    def __init__(self) -> None:
        self.asked: list[tuple[Callable[[Any], None], Callable[[], None] | None]] = []

    def get(self, _path: str, done: Any, *, watch: Callable[[], None] | None = None) -> None:
        self.asked.append((done, watch))

    def answer(self, answer: Any) -> Callable[[], None] | None:
        done, watch = self.asked.pop(0)
        done(answer)
        return watch


def test_an_absent_znode_is_watched_later_though_its_result_was_dropped() -> None:
    session: Any = Answers()
    changes: list[ZnodeChange] = []
    reader = Reader(session, changes.append, lambda action: action())
    found: list[Any] = []

    def read() -> Any:
        found.append((yield from reader.topics(["t"])))

    # Deposed while it was on its way, and elected again in the same connection.
    deposed = Conversation()
    deposed.start_steps(read())
    deposed.drop()
    assert session.answer(NoNode("t")) is not None
    assert found == []
    Conversation().start_steps(read())
    watch = session.answer(Node(DATA, Stat(1, 1, 0, 0, 0)))
    assert list(found[0].found) == ["t"]
    assert watch is not None
    Conversation().start_steps(read())
    assert session.answer(Node(DATA, Stat(1, 1, 0, 0, 0))) is None, "it is watched already"
    watch()
    assert changes == [ZnodeChange(Subject.TOPICS, "t")]
