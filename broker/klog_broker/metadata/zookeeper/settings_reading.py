"""Reads the settings below /config, and the notifications below /config/changes."""

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
"""The settings of entities: topics, brokers, users, client ids and addresses. Users, client ids and
addresses have quotas as settings; users also have passwords."""

_READ_AT_ONCE = 256
"""The most read requests that are sent to ZooKeeper at once. All their responses may arrive in one
event-loop turn, which must stay short."""


_OF_CLIENTS = tuple(f"{CONFIG}/{each}/" for each in (USERS, CLIENTS, IPS))
"""The paths that may be unreadable because of access lists. The settings of topics and brokers must
be readable: without a topic's settings, retention might delete records that are to be kept."""


class CannotRead(MetadataError):
    """ZooKeeper did not return a znode that every broker must be able to read."""


class SettingsReader:
    """Reads settings and notifications. Znodes that cannot be decoded are logged once and ignored.
    So are znodes of users, clients and addresses that an access list hides from this broker:
    operators may restrict the access to these znodes, because those of users have passwords besides
    quotas."""

    def __init__(self) -> None:
        self._bad = BadZnodes(_log)

    def all(self, session: Session) -> Steps[dict[Entity, Mapping[str, str]]]:
        """Read the settings of all entities, except those that cannot be decoded, or that an access
        list hides from this broker."""
        paths: dict[str, Entity] = {}
        yield from self._list(session, [f"{CONFIG}/{each}" for each in ENTITY_TYPES], paths)
        users = [path for path, names in paths.items() if names[0].entity_type == USERS]
        yield from self._list(session, [f"{path}/{CLIENTS}" for path in users], paths)
        found: dict[Entity, Mapping[str, str]] = {}
        yield from self._read(session, paths, found)
        return found

    def of(self, session: Session, entities: Iterable[Entity]) -> Steps[Settings]:
        """Read the settings of `entities`. An entity without a znode has empty settings. The
        result lacks an entity whose znode cannot be decoded, or is hidden by an access list."""
        paths = {config_path(names): names for names in entities}
        found: dict[Entity, Mapping[str, str]] = {names: {} for names in paths.values()}
        yield from self._read(session, paths, found)
        return found

    def notifications(self, session: Session, watch: Callable[[], None]) -> Steps[tuple[str, ...]]:
        """Return the names of all notifications, in any order. The order does not matter, because a
        notification names the entity that changed, not the new settings.

        `watch` is called when the list changes.
        """
        listed = yield from children(session, CONFIG_CHANGES, watch)
        return tuple(
            name
            for name in _listed(CONFIG_CHANGES, listed)
            if sequence_number(name, CONFIG_CHANGE_PREFIX) is not None
        )

    def changed(self, session: Session, notifications: Iterable[str]) -> Steps[list[Entity]]:
        """Return the entities whose settings changed according to `notifications`, each once."""
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
        """List the children of the znodes `parents`. Add the entity of each child to `paths`, by
        the path of the child."""
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
        """Return the znodes at `paths` that exist. The value None means that an access list hides
        the znode from this broker."""
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
