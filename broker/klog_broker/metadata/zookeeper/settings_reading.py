"""What there is below /config, and which notifications of changes there are."""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from klog_broker.metadata.errors import MetadataError
from klog_broker.metadata.zookeeper.bad_znodes import BadZnodes
from klog_broker.metadata.zookeeper.conversation import Ask, Steps, children, together
from klog_broker.runtime.zookeeper.sessions import (
    Children,
    NoAuth,
    Node,
    NoNode,
    Session,
    ZooKeeperError,
)
from pyspark_klog.znodes.configs import (
    CLIENTS,
    ENTITY_TYPES,
    IPS,
    USERS,
    Entity,
    config_path,
    decode_config,
    decode_config_change,
    parse_entity_path,
)
from pyspark_klog.znodes.data import ZnodeError
from pyspark_klog.znodes.paths import (
    CONFIG,
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    sequence_number,
)

_log = logging.getLogger("klog.cluster")

Settings = Mapping[Entity, Mapping[str, str]]
"""Of users, clients and addresses these are quotas, and of users passwords, too."""

_READ_AT_ONCE = 256
"""Answers of so many requests may come in one turn of the loop."""


_OF_CLIENTS = tuple(f"{CONFIG}/{each}/" for each in (USERS, CLIENTS, IPS))
"""Without the settings of a topic its records might be deleted, or lost, that are to be kept."""


class CannotRead(MetadataError):
    """ZooKeeper did not give what every broker may read."""


class SettingsReader:
    """Reads in one session. What is no settings is named in the log, once, and left. So is what an
    access list keeps from this broker of users, clients and addresses: passwords lie there, too."""

    def __init__(self) -> None:
        self._bad = BadZnodes(_log)

    def all(self, session: Session) -> Steps[dict[Entity, Mapping[str, str]]]:
        """Everything that can be used."""
        paths: dict[str, Entity] = {}
        yield from self._list(session, [f"{CONFIG}/{each}" for each in ENTITY_TYPES], paths)
        users = [path for path, names in paths.items() if names[0].entity_type == USERS]
        yield from self._list(session, [f"{path}/{CLIENTS}" for path in users], paths)
        found: dict[Entity, Mapping[str, str]] = {}
        yield from self._read(session, paths, found)
        return found

    def of(self, session: Session, entities: Iterable[Entity]) -> Steps[Settings]:
        """Those of these entities; nothing is set where there is no znode. What cannot be used is
        missing in the answer."""
        paths = {config_path(names): names for names in entities}
        found: dict[Entity, Mapping[str, str]] = {names: {} for names in paths.values()}
        yield from self._read(session, paths, found)
        return found

    def notifications(self, session: Session, watch: Callable[[], None]) -> Steps[tuple[str, ...]]:
        """All that are there. Their order does not matter: they say who, not what."""
        listed = yield from children(session, CONFIG_CHANGES, watch)
        return tuple(
            name
            for name in _listed(CONFIG_CHANGES, listed)
            if sequence_number(name, CONFIG_CHANGE_PREFIX) is not None
        )

    def changed(self, session: Session, notifications: Iterable[str]) -> Steps[list[Entity]]:
        """Whose settings these notifications say to be others, each once."""
        paths = {f"{CONFIG_CHANGES}/{name}": name for name in notifications}
        found: dict[Entity, None] = {}
        for some in _parts(list(paths)):
            nodes = yield from self._get_all(session, some)
            for path, node in nodes.items():
                if node is None:
                    continue
                try:
                    found[decode_config_change(paths[path], node.data)] = None
                except ZnodeError as error:
                    self._bad.name(path, node.data, str(error))
        return list(found)

    def _read(
        self,
        session: Session,
        paths: Mapping[str, Entity],
        found: dict[Entity, Mapping[str, str]],
    ) -> Steps[None]:
        for some in _parts(list(paths)):
            nodes = yield from self._get_all(session, some)
            for path, node in nodes.items():
                if node is None:
                    found.pop(paths[path], None)
                    continue
                try:
                    found[paths[path]] = decode_config(path, node.data)
                except ZnodeError as error:
                    found.pop(paths[path], None)
                    self._bad.name(path, node.data, str(error))

    def _list(self, session: Session, parents: list[str], paths: dict[str, Entity]) -> Steps[None]:
        """Adds the entities that have these parents."""
        for some in _parts(parents):
            answers = yield from together([partial(session.children, path) for path in some])
            for parent, answer in zip(some, answers, strict=True):
                if isinstance(answer, NoAuth) and parent.startswith(_OF_CLIENTS):
                    self._bad.name(parent, b"", str(answer))
                    continue
                for name in _listed(parent, answer):
                    path = f"{parent}/{name}"
                    try:
                        paths[path] = parse_entity_path(path, path.removeprefix(f"{CONFIG}/"))
                    except ZnodeError as error:
                        self._bad.name(path, b"", str(error))

    def _get_all(self, session: Session, paths: list[str]) -> Steps[dict[str, Node | None]]:
        """Data of these paths, without those that are not there; None: they may not be read."""
        asks: list[Ask] = [partial(session.get, path) for path in paths]
        answers = yield from together(asks)
        found: dict[str, Node | None] = {}
        for path, answer in zip(paths, answers, strict=True):
            if isinstance(answer, Node):
                found[path] = answer
            elif isinstance(answer, NoAuth) and path.startswith(_OF_CLIENTS):
                found[path] = None
                self._bad.name(path, b"", str(answer))
            elif not isinstance(answer, NoNode):
                raise CannotRead(f"{path} cannot be read: {answer}")
        return found


def _parts(paths: list[str]) -> Iterable[list[str]]:
    return (paths[at : at + _READ_AT_ONCE] for at in range(0, len(paths), _READ_AT_ONCE))


def _listed(path: str, answer: Children | ZooKeeperError) -> tuple[str, ...]:
    if isinstance(answer, NoNode):
        return ()
    if isinstance(answer, ZooKeeperError):
        raise CannotRead(f"the children of {path} cannot be read: {answer}")
    return answer.names
