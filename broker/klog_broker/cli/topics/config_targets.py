"""The options of `klog configs` that select the resources or quotas to show or change."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import click

from pyspark_klog.client.admin.configs import Resource, ResourceType
from pyspark_klog.client.admin.quotas import CLIENT_ID, IP, USER


class Targets(NamedTuple):
    """The resources whose settings, or the entity whose quotas, a command shows or changes. An
    entity has a name for each of its types (user, client-id, ip); None stands for the default
    quotas of the type."""

    resources: Sequence[Resource]
    entity: Mapping[str, str | None]


_OPTIONS = (
    click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="A topic; repeatable."),
    click.option(
        "--broker", "brokers", multiple=True, type=int, metavar="ID", help="A broker; repeatable."
    ),
    click.option("--default-broker", is_flag=True, help="Settings for all brokers."),
    click.option(
        "--group", "groups", multiple=True, metavar="GROUP", help="A consumer group; repeatable."
    ),
    click.option(
        "--client-metrics", multiple=True, metavar="NAME", help="A subscription to client metrics."
    ),
    click.option(
        "--user",
        metavar="NAME",
        help="Quotas of a user; with --client-id, of the user's clients with that id.",
    ),
    click.option("--default-user", is_flag=True, help="Default quotas of users."),
    click.option("--client-id", metavar="ID", help="Quotas of a client id."),
    click.option("--default-client-id", is_flag=True, help="Default quotas of client ids."),
    click.option("--ip", metavar="ADDRESS", help="Quotas of an address."),
    click.option("--default-ip", is_flag=True, help="Default quotas of addresses."),
)


def takes_targets(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that select resources or a quota entity to a command; `read_targets` reads
    these options."""
    return reduce(lambda decorated, option: option(decorated), _OPTIONS[::-1], command)


def read_targets(given: Mapping[str, Any]) -> Targets:
    """Return the resources or the quota entity that the options name.

    :raises UsageError: if options for resources and for quotas are given together, or options for
        addresses and for users or client ids, or a name and the default of the same type
        (``--user`` and ``--default-user``)
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
        raise click.UsageError("quotas of addresses have no user or client id: expected --ip alone")
    if entity and resources:
        raise click.UsageError("expected options for quotas or options for settings, not both")
    return Targets(resources, entity)
