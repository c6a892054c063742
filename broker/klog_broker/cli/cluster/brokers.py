"""`klog brokers`: lists and describes the brokers of any cluster with Kafka's protocol."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import click

from klog_broker.cli.common.client_options import (
    HELP,
    ClientOptions,
    print_json,
    with_client_options,
)
from klog_broker.cli.common.failures import Failures
from klog_broker.cli.common.tables import Row, print_table
from klog_broker.cli.topics.log_dirs import directory_fields, offline_errors, print_totals
from pyspark_klog.client.admin.brokers import (
    ListedBroker,
    ReplicaCounts,
    broker_versions,
    count_replicas,
    list_brokers,
)
from pyspark_klog.client.admin.log_dirs import LogDir, describe_log_dirs
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.transport.api_versions import BrokerVersions
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.registry import find_api, is_known

_DESCRIBE_HELP = """Show the replicas, data directories and versions of brokers (default: all).

A broker sends no version of its software, but the highest version of each API that it serves, and
the levels of its cluster's features.
"""


@dataclass(slots=True)
class _DescribedBroker:
    """A broker with the results of its requests; ``versions`` is None if it did not answer."""

    listed: ListedBroker
    counts: ReplicaCounts
    versions: BrokerVersions | None = None
    log_dirs: list[LogDir] = field(default_factory=list)


@click.group("brokers", context_settings=HELP)
def command() -> None:
    """List and describe brokers."""


@command.command("list")
@with_client_options
def list_command(asking: ClientOptions) -> None:
    """List the live brokers, with the addresses that clients get at this listener.

    The controller is unknown in a KRaft cluster, whose brokers do not name it to clients.
    """
    with asking.client() as client:
        found = list_brokers(client)
    if asking.as_json:
        print_json([_summary(each) for each in found])
        return
    print_table(("broker", "address", "rack", "controller"), [_listed_row(each) for each in found])


@command.command("describe", help=_DESCRIBE_HELP)
@click.argument("broker_ids", nargs=-1, type=click.IntRange(min=0), metavar="[ID...]")
@with_client_options
def describe(asking: ClientOptions, broker_ids: Sequence[int]) -> None:
    """Run `klog brokers describe`; the help text is _DESCRIBE_HELP."""
    failures = Failures()
    with asking.client() as client:
        found = _describe_each(client, broker_ids, failures)
    if asking.as_json:
        print_json([_details(each) for each in found])
    elif found:
        _print_tables(found)
    failures.add(offline_errors(log_dir for each in found for log_dir in each.log_dirs))
    failures.raise_collected()


def _describe_each(
    client: BlockingClient, broker_ids: Sequence[int], failures: Failures
) -> list[_DescribedBroker]:
    """Describe brokers (without ids: all), sorted by id; ``failures`` gets the errors of the
    brokers and of single requests to them."""
    listed = {each.broker_id: each for each in list_brokers(client)}
    counts = count_replicas(client.refresh(None))
    found: list[_DescribedBroker] = []
    for broker_id in sorted({*broker_ids} or listed):
        count = counts.get(broker_id, ReplicaCounts())
        if broker_id not in listed:
            there = ", ".join(map(str, listed))
            text = f"there is no broker {broker_id}; there are: {there}"
            if count.replicas:
                text = f"broker {broker_id} is down ({count.replicas} replicas); live: {there}"
            failures.add([BrokerError(ErrorCode.BROKER_ID_NOT_REGISTERED, text)])
            continue
        each = _DescribedBroker(listed[broker_id], count)
        found.append(each)
        with failures.collect():
            each.versions = broker_versions(client, broker_id)
            each.log_dirs = describe_log_dirs(client, broker_id)
    return found


def _print_tables(found: Sequence[_DescribedBroker]) -> None:
    names = ("broker", "address", "rack", "controller", "leaders", "replicas", "out of sync")
    print_table(
        names,
        [
            (
                *_listed_row(each.listed),
                *(each.counts.leaders, each.counts.replicas, each.counts.out_of_sync),
            )
            for each in found
        ],
    )
    log_dirs = [log_dir for each in found for log_dir in each.log_dirs]
    if log_dirs:
        click.echo()
        print_totals(log_dirs)
    answered = [each for each in found if each.versions is not None]
    heads = tuple(f"broker {each.listed.broker_id}" for each in answered)
    versions = [each.versions for each in answered if each.versions is not None]
    features = sorted({name for each in versions for name in each.features})
    if features:
        click.echo()
        rows: list[Row] = [
            (name, *(each.features.get(name) for each in versions)) for name in features
        ]
        print_table(("feature level", *heads), rows)
    if versions:
        click.echo()
        print_table(("highest version", *heads), _api_rows(versions))


def _api_rows(versions: Iterable[BrokerVersions]) -> list[Row]:
    versions = list(versions)
    keys = sorted({key for each in versions for key in each.ranges})
    return [
        (_api_name(key) or f"API {key}", *(_highest(each, key) for each in versions))
        for key in keys
    ]


def _highest(versions: BrokerVersions, key: int) -> int | None:
    return versions.ranges[key][1] if key in versions.ranges else None


def _api_name(key: int) -> str | None:
    """Return Kafka's name of an API; None for an API that klog has no messages for."""
    return find_api(key).name if is_known(key) else None


def _listed_row(listed: ListedBroker) -> Row:
    is_controller = {True: "yes", False: "no", None: None}[listed.is_controller]
    return (listed.broker_id, str(listed.address), listed.rack, is_controller)


def _summary(listed: ListedBroker) -> dict[str, object]:
    return {
        "broker": listed.broker_id,
        "host": listed.address.host,
        "port": listed.address.port,
        "rack": listed.rack,
        "controller": listed.is_controller,
    }


def _details(each: _DescribedBroker) -> dict[str, object]:
    versions = each.versions
    return {
        **_summary(each.listed),
        "leaders": each.counts.leaders,
        "replicas": each.counts.replicas,
        "out_of_sync": each.counts.out_of_sync,
        "directories": [
            {**directory_fields(log_dir), "replicas": len(log_dir.replicas)}
            for log_dir in each.log_dirs
        ],
        "features": None if versions is None else dict(sorted(versions.features.items())),
        "apis": None
        if versions is None
        else [
            {"key": key, "name": _api_name(key), "min_version": lowest, "max_version": highest}
            for key, (lowest, highest) in sorted(versions.ranges.items())
        ],
    }
