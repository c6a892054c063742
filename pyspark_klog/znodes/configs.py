"""/config: settings and quotas of topics, brokers, users, clients and addresses, and
/config/changes, by which brokers learn that one of them has changed.

An entity is a path below /config: ``topics/orders``, ``brokers/<default>``,
``users/alice/clients/<default>``. Names in it are percent-encoded, as Java's URLEncoder does it.
"""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote

from pyspark_klog.znodes.data import ZnodeError, read_object, shown, write_json
from pyspark_klog.znodes.paths import CONFIG, CONFIG_CHANGES

TOPICS, BROKERS, USERS, CLIENTS, IPS = "topics", "brokers", "users", "clients", "ips"
ENTITY_TYPES = (TOPICS, BROKERS, USERS, CLIENTS, IPS)
CHANGE_VERSION = 2

_DEFAULT = "<default>"


class EntityName(NamedTuple):
    """One part of an entity; ``name`` None is the default of its type."""

    entity_type: str
    name: str | None


Entity = tuple[EntityName, ...]
"""One part, or the two of a client of a user: users first."""


def entity(entity_type: str, name: str | None) -> Entity:
    """An entity of one part."""
    return (EntityName(entity_type, name),)


def entity_path(names: Entity) -> str:
    """The entity as its change says it: its path below /config."""
    return "/".join(
        f"{each.entity_type}/{_DEFAULT if each.name is None else sanitized(each.name)}"
        for each in names
    )


def config_path(names: Entity) -> str:
    """Where the entity's settings are."""
    return f"{CONFIG}/{entity_path(names)}"


def sanitized(name: str) -> str:
    """A name as one part of a path: all but ASCII's letters and digits and ``.-_`` is encoded."""
    return quote(name, safe="").replace("~", "%7E")


def desanitized(text: str) -> str:
    """The inverse. What is no encoding stands for itself."""
    return unquote(text)


def encode_config(config: Mapping[str, str]) -> bytes:
    """Version 1."""
    return write_json({"version": 1, "config": dict(config)})


def decode_config(path: str, data: bytes | None) -> dict[str, str]:
    """Any version: Kafka does not look at it. Nothing is set where there is no data (a user whose
    clients alone have quotas).

    :raises ZnodeError: if it is none
    """
    if not data:
        return {}
    fields = read_object(path, data)
    return fields.text_map("config") if "config" in fields else {}


def encode_config_change(names: Entity) -> bytes:
    """Version 2."""
    return write_json({"version": CHANGE_VERSION, "entity_path": entity_path(names)})


def decode_config_change(name: str, data: bytes | None) -> Entity:
    """Which entity has changed: versions 1 (topics and clients) and 2, as Kafka. ``name`` is the
    znode's below /config/changes.

    :raises ZnodeError: if it is none
    """
    fields = read_object(f"{CONFIG_CHANGES}/{name}", data)
    if fields.version(newest=CHANGE_VERSION) == 1:
        entity_type = fields.text("entity_type")
        if entity_type not in (TOPICS, CLIENTS):
            fields.refuse("entity_type", f"to be {TOPICS} or {CLIENTS}")
        text = f"{entity_type}/{fields.text('entity_name')}"
    else:
        text = fields.text("entity_path")
    return parse_entity_path(fields.path, text)


def parse_entity_path(path: str, text: str) -> Entity:
    """The entity that ``text`` says; ``path`` is the znode where it stands, for the error.

    :raises ZnodeError: if it says none
    """
    words = text.split("/")
    types, names = words[::2], words[1::2]
    known = types in ([USERS, CLIENTS], *([each] for each in ENTITY_TYPES))
    if not known or len(names) != len(types) or not all(names):
        expected = f"the path of an entity ({', '.join(ENTITY_TYPES)}, or users/.../clients/...)"
        raise ZnodeError(path, expected, shown(text))
    return tuple(
        EntityName(each, None if name == _DEFAULT else desanitized(name))
        for each, name in zip(types, names, strict=True)
    )
