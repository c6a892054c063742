"""/config: settings and quotas of topics, brokers, users, clients and IP addresses.

Brokers watch /config/changes, where each change of an entity adds a notification. An entity is a
path below /config: ``topics/orders``, ``brokers/<default>``, ``users/alice/clients/<default>``. The
names in an entity are percent-encoded like in Kafka.
"""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote

from pyspark_klog.znodes.data import ZnodeError, read_object, shorten_repr, write_json
from pyspark_klog.znodes.paths import CONFIG, CONFIG_CHANGES

TOPICS, BROKERS, USERS, CLIENTS, IPS = "topics", "brokers", "users", "clients", "ips"
ENTITY_TYPES = (TOPICS, BROKERS, USERS, CLIENTS, IPS)
CHANGE_VERSION = 2

_DEFAULT = "<default>"


class EntityName(NamedTuple):
    """One part of an entity: a type, such as topics, and the name of a topic. ``name`` None stands
    for the type's default entity, ``<default>``."""

    entity_type: str
    name: str | None


Entity = tuple[EntityName, ...]
"""The subject of settings or quotas under /config. An entity has one part, for example a topic.
Only a user combined with a client id has two parts: first the user, then the client."""


def entity(entity_type: str, name: str | None) -> Entity:
    """Return the entity with one part, such as the type ``topics`` and the name of a topic."""
    return (EntityName(entity_type, name),)


def entity_path(names: Entity) -> str:
    """Return the entity's path below /config, the form that change notifications contain."""
    return "/".join(
        f"{each.entity_type}/{_DEFAULT if each.name is None else encode_entity_name(each.name)}"
        for each in names
    )


def config_path(names: Entity) -> str:
    """Return the path of the znode with the entity's settings."""
    return f"{CONFIG}/{entity_path(names)}"


def encode_entity_name(name: str) -> str:
    """Percent-encode a name for a path: all characters except ASCII letters, digits and ``.-_``."""
    return quote(name, safe="").replace("~", "%7E")


def decode_entity_name(text: str) -> str:
    """Decode a percent-encoded name; invalid escapes stay as they are."""
    return unquote(text)


def encode_config(config: Mapping[str, str]) -> bytes:
    """Encode an entity's settings in version 1."""
    return write_json({"version": 1, "config": dict(config)})


def decode_config(path: str, data: bytes | None) -> dict[str, str]:
    """Decode an entity's settings of any version: Kafka does not check the version.

    A znode without data gives no settings. For example, /config/users/alice is such a znode if only
    its child, a client of the user alice, has quotas.

    :raises ZnodeError: if ``data`` is not a JSON object with the settings
    """
    if not data:
        return {}
    fields = read_object(path, data)
    return fields.text_map("config") if "config" in fields else {}


def encode_config_change(names: Entity) -> bytes:
    """Encode a change notification for an entity in version 2."""
    return write_json({"version": CHANGE_VERSION, "entity_path": entity_path(names)})


def decode_config_change(name: str, data: bytes | None) -> Entity:
    """Decode /config/changes/``name``: the entity that has changed.

    Like Kafka, the function accepts version 1 (topics and clients only) and version 2.

    :raises ZnodeError: if ``data`` is no change notification
    """
    fields = read_object(f"{CONFIG_CHANGES}/{name}", data)
    if fields.version(newest=CHANGE_VERSION) == 1:
        entity_type = fields.text("entity_type")
        if entity_type not in (TOPICS, CLIENTS):
            fields.raise_error("entity_type", f"to be {TOPICS} or {CLIENTS}")
        text = f"{entity_type}/{fields.text('entity_name')}"
    else:
        text = fields.text("entity_path")
    return parse_entity_path(fields.path, text)


def parse_entity_path(path: str, text: str) -> Entity:
    """Parse ``text``, an entity's path below /config; ``path`` is the path of the znode that
    contains ``text``.

    :raises ZnodeError: if ``text`` is not the path of an entity
    """
    words = text.split("/")
    types, names = words[::2], words[1::2]
    known = types in ([USERS, CLIENTS], *([each] for each in ENTITY_TYPES))
    if not known or len(names) != len(types) or not all(names):
        expected = f"the path of an entity ({', '.join(ENTITY_TYPES)}, or users/.../clients/...)"
        raise ZnodeError(path, expected, shorten_repr(text))
    return tuple(
        EntityName(each, None if name == _DEFAULT else decode_entity_name(name))
        for each, name in zip(types, names, strict=True)
    )
