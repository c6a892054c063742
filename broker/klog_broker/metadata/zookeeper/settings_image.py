"""Converts settings and quotas from their form in ZooKeeper to the form of the metadata image, and
back. Pure functions."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from klog_broker.metadata.image import ALL_BROKERS, ImageDraft, MetadataImage, QuotaEntity
from klog_broker.metadata.zookeeper.settings_reading import Settings
from pyspark_klog.znodes.configs import (
    BROKERS,
    CLIENTS,
    IPS,
    TOPICS,
    USERS,
    Entity,
    EntityName,
    config_path,
    entity,
)

_log = logging.getLogger("klog.cluster")

_KINDS = {USERS: "user", CLIENTS: "client-id", IPS: "ip"}
_TYPES = {kind: entity_type for entity_type, kind in _KINDS.items()}
# Quotas that Kafka writes without a fraction.
_WHOLE = frozenset(("producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"))
_QUOTAS = _WHOLE | {"request_percentage", "controller_mutation_rate"}
_ROUNDED = 1e-6


def with_settings(
    image: MetadataImage, settings: Settings, *, is_all: bool
) -> tuple[MetadataImage, Sequence[str]]:
    """Return the image with `settings`, and the names of topics whose settings changed. With
    `is_all`, an entity (such as a topic or a broker) that `settings` lacks loses its settings.
    Settings of topics that the image lacks are ignored."""
    draft = ImageDraft(image)
    if is_all:
        settings = {**_nothing(image), **settings}
    for names, found in settings.items():
        first = names[0]
        if first.entity_type == TOPICS:
            topic = None if first.name is None else draft.topics.get(first.name)
            if topic is not None and topic.configs != found:
                draft.put(replace(topic, configs=MappingProxyType(dict(found))))
        elif first.entity_type == BROKERS:
            name = ALL_BROKERS if first.name is None else first.name
            if draft.broker_configs.get(name, {}) != found:
                draft.put_broker_configs(name, found)
        else:
            quotas = _quotas(names, found)
            if draft.client_quotas.get(quota_entity(names), {}) != quotas:
                draft.put_quotas(quota_entity(names), quotas)
    return (draft.image(), draft.changed_names) if draft.is_changed else (image, ())


def quota_entity(names: Entity) -> QuotaEntity:
    """Return the key in the image's `client_quotas` for the entity of a znode with quotas."""
    return tuple(sorted((_KINDS[each.entity_type], each.name) for each in names))


def znode_entity(who: QuotaEntity) -> Entity:
    """Return the entity of a znode with quotas for a key of the image's `client_quotas`. The user
    stands before the client id, as in the znode's path: /config/users/U/clients/C."""
    names = (EntityName(_TYPES[kind], name) for kind, name in who)
    return tuple(sorted(names, key=lambda each: each.entity_type, reverse=True))


def with_quotas(settings: Mapping[str, str], update: Mapping[str, float | None]) -> dict[str, str]:
    """Return a znode's settings with the quotas in `update` set, or removed if their value is None.
    All other settings, such as a user's passwords, stay."""
    changed = dict(settings)
    for key, value in update.items():
        if value is None:
            changed.pop(key, None)
        else:
            changed[key] = str(int(value + _ROUNDED)) if key in _WHOLE else str(value)
    return changed


def _quotas(names: Entity, settings: Mapping[str, str]) -> dict[str, float]:
    quotas = {}
    for key in _QUOTAS & settings.keys():
        try:
            value = float(settings[key])
        except ValueError:
            value = math.nan
        if math.isnan(value):
            _log.error(
                "znode=%s %s=%r is no number, so this quota is ignored",
                config_path(names),
                key,
                settings[key][:100],
            )
        else:
            quotas[key] = value
    return quotas


def _nothing(image: MetadataImage) -> dict[Entity, Mapping[str, str]]:
    """Return empty settings for each entity that has settings in the image, so that an entity whose
    settings are gone in ZooKeeper loses them in the image."""
    none: Mapping[str, str] = MappingProxyType({})
    topics = (entity(TOPICS, each.name) for each in image.topics.values() if each.configs)
    brokers = (entity(BROKERS, name or None) for name in image.broker_configs)
    quotas = (znode_entity(who) for who in image.client_quotas)
    return dict.fromkeys((*topics, *brokers, *quotas), none)
