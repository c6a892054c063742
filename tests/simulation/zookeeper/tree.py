"""ZooKeeper's tree as a pure state machine: equal requests in equal order get equal responses.

The model follows ZooKeeper 3.9.5 (tests/integration/test_zookeeper_contract.py asks a real one):
which error comes first; that a failed write takes a zxid, too; that the number of a sequential node
is the number of children that its parent ever got; in which order watches fire.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from klog_broker.runtime.zookeeper.requests import (
    Exists,
    Get,
    ListChildren,
    Multi,
    Request,
    describe,
)
from klog_broker.runtime.zookeeper.sessions import (
    ANY_VERSION,
    BadVersion,
    Check,
    Children,
    Create,
    Created,
    Delete,
    MultiFailed,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    RequestRefused,
    Set,
    Stat,
    ZooKeeperError,
)


class Change(NamedTuple):
    """A change that watches wait for: of a node, or of its list of children."""

    path: str
    of_children: bool


@dataclass
class _Node:
    data: bytes
    owner: int
    czxid: int
    mzxid: int
    version: int = 0
    children: dict[str, None] = field(default_factory=dict)
    children_made: int = 0

    def stat(self) -> Stat:
        return Stat(self.czxid, self.mzxid, self.version, self.owner, len(self.children))


class Tree:
    """All nodes, as of one zxid."""

    def __init__(self) -> None:
        self._nodes = {"/": _Node(b"", 0, 0, 0)}

    # --- reads -----------------------------------------------------------------------------------
    def read(self, request: Request) -> Any:
        """The response to a Get, an Exists or a ListChildren."""
        node = self._nodes.get(request.path)
        if node is None:
            return None if isinstance(request, Exists) else _no_node(request)
        if isinstance(request, Exists):
            return node.stat()
        if isinstance(request, ListChildren):
            return Children(tuple(sorted(node.children)), node.stat())
        assert isinstance(request, Get)
        return Node(node.data, node.stat())

    # --- writes ----------------------------------------------------------------------------------
    def write(self, request: Request, zxid: int, session_id: int) -> tuple[Any, list[Change]]:
        """Apply a write; return its response and the changes, in their order."""
        if not isinstance(request, Multi):
            fault = self._fault(request)
            return self._apply(request, zxid, session_id) if fault is None else (fault, [])
        undo: dict[str, _Node | None] = {}
        answers: list[Any] = []
        changes: list[Change] = []
        for index, part in enumerate(request.operations):
            fault = self._fault(part)
            if fault is not None:
                self._restore(undo)
                return MultiFailed(index, fault), []
            for path in (part.path, _parent(part.path)):
                self._keep(undo, path)
            answer, changed = self._apply(part, zxid, session_id, undo)
            answers.append(answer._replace(stat=None) if isinstance(answer, Created) else answer)
            changes += changed
        return tuple(answers), changes

    def end_session(self, session_id: int, zxid: int) -> list[Change]:
        """Delete the ephemeral nodes of a session."""
        own = sorted(path for path, node in self._nodes.items() if node.owner == session_id)
        changes: list[Change] = []
        for path in own:
            changes += self._apply(Delete(path), zxid, session_id)[1]
        return changes

    def paths(self) -> Iterator[str]:
        """The paths of all nodes."""
        return iter(self._nodes)

    # --- inside ----------------------------------------------------------------------------------
    def _fault(self, request: Request) -> ZooKeeperError | None:
        node = self._nodes.get(self._final_path(request))
        if isinstance(request, Create):
            parent = self._nodes.get(_parent(request.path))
            if parent is None:
                return _no_node(request)
            if node is not None:
                return NodeExists(f"{describe(request)}: the node exists")
            if parent.owner:
                return RequestRefused(f"{describe(request)}: its parent is ephemeral")
            return None
        if node is None:
            return _no_node(request)
        assert isinstance(request, Set | Delete | Check)
        if request.version not in (ANY_VERSION, node.version):
            return BadVersion(f"{describe(request)}: it has version {node.version}")
        if isinstance(request, Delete):
            if request.path == "/":
                return RequestRefused(f"{describe(request)}: the root stays")
            if node.children:
                return NotEmpty(f"{describe(request)}: the node has children")
        return None

    def _apply(
        self,
        request: Request,
        zxid: int,
        session_id: int,
        undo: dict[str, _Node | None] | None = None,
    ) -> tuple[Any, list[Change]]:
        """Apply one operation; a sequential node gets its path here, and is added to ``undo``."""
        nodes = self._nodes
        if isinstance(request, Create):
            path = self._final_path(request)
            if undo is not None:
                self._keep(undo, path)
            parent = nodes[_parent(path)]
            parent.children[path.rpartition("/")[2]] = None
            parent.children_made += 1
            owner = session_id if request.ephemeral else 0
            nodes[path] = _Node(request.data, owner, zxid, zxid)
            answer = Created(path, nodes[path].stat())
            return answer, [Change(path, False), Change(_parent(path), True)]
        if isinstance(request, Set):
            node = nodes[request.path]
            node.data = request.data
            node.version += 1
            node.mzxid = zxid
            return node.stat(), [Change(request.path, False)]
        if isinstance(request, Delete):
            path = request.path
            del nodes[path]
            del nodes[_parent(path)].children[path.rpartition("/")[2]]
            return None, [Change(path, False), Change(path, True), Change(_parent(path), True)]
        assert isinstance(request, Check)
        return None, []

    def _final_path(self, request: Request) -> str:
        if isinstance(request, Create) and request.sequential:
            parent = self._nodes.get(_parent(request.path))
            return f"{request.path}{parent.children_made if parent else 0:010d}"
        return request.path

    def _keep(self, undo: dict[str, _Node | None], path: str) -> None:
        if path not in undo:
            node = self._nodes.get(path)
            undo[path] = None if node is None else _copy(node)

    def _restore(self, undo: dict[str, _Node | None]) -> None:
        for path, node in undo.items():
            if node is None:
                self._nodes.pop(path, None)
            else:
                self._nodes[path] = node


def _copy(node: _Node) -> _Node:
    return _Node(
        node.data, node.owner, node.czxid, node.mzxid, node.version,
        dict(node.children), node.children_made,
    )  # fmt: skip


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _no_node(request: Request) -> NoNode:
    return NoNode(f"{describe(request)}: there is no such node, or its parent is missing")
