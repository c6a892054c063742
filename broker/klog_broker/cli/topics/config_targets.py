"""Of what `klog configs` tells or changes the settings: its options, read."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import click

from pyspark_klog.client.admin.configs import Resource, ResourceType
from pyspark_klog.client.admin.quotas import CLIENT_ID, IP, USER


class Targets(NamedTuple):
    """Resources, or whom a quota is for (names by type, None for the default of that type)."""

    resources: Sequence[Resource]
    entity: Mapping[str, str | None]


_OPTIONS = (
    click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="A topic; repeatable."),
    click.option(
        "--broker", "brokers", multiple=True, type=int, metavar="ID", help="A broker; repeatable."
    ),
    click.option("--default-broker", is_flag=True, help="What holds for all brokers."),
    click.option(
        "--group", "groups", multiple=True, metavar="GROUP", help="A consumer group; repeatable."
    ),
    click.option("--client-metrics", multiple=True, metavar="NAME", help="A subscription."),
    click.option(
        "--user",
        metavar="NAME",
        help="Quotas of a user; with --client-id, of its clients so named.",
    ),
    click.option("--default-user", is_flag=True, help="Quotas of users that have none."),
    click.option("--client-id", metavar="ID", help="Quotas of a client id."),
    click.option("--default-client-id", is_flag=True, help="Quotas of client ids that have none."),
    click.option("--ip", metavar="ADDRESS", help="Quotas of an address."),
    click.option("--default-ip", is_flag=True, help="Quotas of addresses that have none."),
)


def takes_targets(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options; they are read by `read_targets`."""
    return reduce(lambda decorated, option: option(decorated), _OPTIONS[::-1], command)


def read_targets(given: Mapping[str, Any]) -> Targets:
    """What the options name.

    :raises UsageError: if resources and quotas are mixed, or a name and the default of its type
    """
    resources = [Resource(ResourceType.TOPIC, name) for name in given["topics"]]
    resources += [Resource(ResourceType.BROKER, str(each)) for each in given["brokers"]]
    if given["default_broker"]:
        resources.append(Resource(ResourceType.BROKER, ""))
    resources += [Resource(ResourceType.GROUP, name) for name in given["groups"]]
    resources += [Resource(ResourceType.CLIENT_METRICS, n) for n in given["client_metrics"]]
    entity: dict[str, str | None] = {}
    for kind in (USER, CLIENT_ID, IP):
        option = kind.replace("-", "_")
        name, is_default = given[option], given[f"default_{option}"]
        if name is not None and is_default:
            raise click.UsageError(f"--{kind} and --default-{kind}: expected one of them")
        if name is not None or is_default:
            entity[kind] = name
    if IP in entity and len(entity) > 1:
        raise click.UsageError("quotas of addresses know no users and client ids: --ip alone")
    if entity and resources:
        raise click.UsageError("expected quotas of somebody, or settings of something, not both")
    return Targets(resources, entity)
