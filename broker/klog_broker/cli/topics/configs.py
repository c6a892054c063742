"""`klog configs`: shows and changes settings and quotas, on any broker with Kafka's protocol."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from klog_broker.cli.common.client_options import (
    HELP,
    ClientOptions,
    print_json,
    say,
    with_client_options,
)
from klog_broker.cli.common.failures import Failures
from klog_broker.cli.common.tables import Row, print_table, shown
from klog_broker.cli.topics.config_targets import read_targets, takes_targets
from pyspark_klog.client.admin.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigSource,
    Resource,
    alter_configs,
    describe_configs,
    is_own,
    list_config_resources,
)
from pyspark_klog.client.admin.quotas import Quotas, alter_quotas, describe_quotas
from pyspark_klog.client.cluster.blocking_client import BlockingClient

_SECRET = "(secret)"
_SOURCES = {each.value: each.name.lower().replace("_", " ") for each in ConfigSource}


@click.group("configs", context_settings=HELP)
def command() -> None:
    """Show and change settings of topics, brokers, groups and client metrics, and quotas."""


@command.command("list")
@with_client_options
def list_all(asking: ClientOptions) -> None:
    """List the resources that can have settings. Brokers of Kafka 3.7 to 4.0 list only client
    metrics; older brokers cannot list resources."""
    with asking.client() as client:
        found = list_config_resources(client)
    if asking.as_json:
        print_json([_named(resource) for resource in found])
        return
    print_table(("type", "name"), [(_type_of(each), each.name) for each in found])


@command.command("describe")
@takes_targets
@click.option("--quotas", is_flag=True, help="Show all quotas.")
@click.option("--all", "show_all", is_flag=True, help="Show defaults and synonyms, too.")
@with_client_options
def describe(asking: ClientOptions, quotas: bool, show_all: bool, **given: Any) -> None:
    """Show the settings that were set for a topic, broker, group or client metrics, or show quotas.
    With --all, show defaults and synonyms, too."""
    resources, entity = read_targets(given)
    if quotas == bool(resources or entity):
        raise click.UsageError(
            "expected --quotas, or an option such as --topic, --broker or --user"
        )
    found: list[tuple[Resource, list[ConfigEntry]]] = []
    failures = Failures()
    with asking.client() as client:
        if not resources:
            _print_quotas(asking, describe_quotas(client, entity))
            return
        for each in resources:
            with failures.collect():
                found.append((each, _entries(client, each, show_all)))
    if asking.as_json:
        print_json([{**_named(each), "configs": _details(entries)} for each, entries in found])
    else:
        for number, (resource, entries) in enumerate(found):
            if number:
                click.echo()
            click.echo(str(resource))
            columns = ("name", "value", "source", *(("synonyms",) if show_all else ()))
            print_table(columns, [_row(entry, show_all) for entry in entries])
    failures.raise_collected()


@command.command("alter")
@takes_targets
@click.option("--set", "to_set", multiple=True, metavar="NAME=VALUE", help="Set; repeatable.")
@click.option("--delete", multiple=True, metavar="NAME", help="Reset to the default.")
@click.option("--append", multiple=True, metavar="NAME=VALUE", help="Add items to a list.")
@click.option("--subtract", multiple=True, metavar="NAME=VALUE", help="Remove items from a list.")
@click.option("--validate-only", is_flag=True, help="Only check the change.")
@with_client_options
def alter(
    asking: ClientOptions,
    to_set: Sequence[str],
    delete: Sequence[str],
    append: Sequence[str],
    subtract: Sequence[str],
    validate_only: bool,
    **given: Any,
) -> None:
    """Change settings or quotas; those that are not named stay unchanged."""
    resources, entity = read_targets(given)
    if not resources and not entity:
        raise click.UsageError("expected an option such as --topic, --broker or --user")
    changes = _changes("--set", ConfigOperation.SET, to_set)
    changes += [ConfigChange(name, ConfigOperation.DELETE) for name in delete]
    changes += _changes("--append", ConfigOperation.APPEND, append)
    changes += _changes("--subtract", ConfigOperation.SUBTRACT, subtract)
    if not changes:
        raise click.UsageError("expected --set, --delete, --append or --subtract")
    quotas = _quota_changes(changes) if entity else {}
    done: list[str] = []
    remarks: Sequence[str] = ()
    failures = Failures()
    with asking.client() as client:
        if entity:
            remarks = alter_quotas(client, entity, quotas, validate_only=validate_only)
            done.append(_entity_text(entity))
        for resource in resources:
            with failures.collect():
                alter_configs(client, resource, changes, validate_only=validate_only)
                done.append(str(resource))
    say(asking.as_json, "can be altered" if validate_only else "altered", done)
    for each in remarks:
        click.echo(f"klog: {shown(each)}", err=True)
    failures.raise_collected()


def _changes(option: str, operation: ConfigOperation, texts: Sequence[str]) -> list[ConfigChange]:
    changes = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} {text}: expected NAME=VALUE, as retention.ms=60000")
        changes.append(ConfigChange(name, operation, value))
    return changes


def _quota_changes(changes: Sequence[ConfigChange]) -> dict[str, float | None]:
    """Return the new value of each quota by name; None deletes the quota.

    :raises UsageError: for --append and --subtract, and for values that are not numbers
    """
    wanted: dict[str, float | None] = {}
    for name, operation, value in changes:
        if operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
            raise click.UsageError("quotas are numbers: expected --set or --delete")
        try:
            wanted[name] = None if value is None else float(value)
        except ValueError:
            raise click.UsageError(f"--set {name}={value}: expected a number") from None
    return wanted


def _entries(client: BlockingClient, resource: Resource, show_all: bool) -> list[ConfigEntry]:
    found = describe_configs(client, resource, synonyms=show_all)
    return [entry for _, entry in sorted(found.items()) if show_all or is_own(resource, entry)]


def _row(entry: ConfigEntry, show_all: bool) -> Row:
    columns = (entry.name, _value(entry), _source(entry.source))
    if not show_all:
        return columns
    synonyms = (f"{each.name}={each.value} ({_source(each.source)})" for each in entry.synonyms)
    return (*columns, ", ".join(synonyms))


def _value(entry: ConfigEntry) -> str | None:
    return _SECRET if entry.is_sensitive else entry.value


def _source(number: int) -> str:
    return _SOURCES.get(number, str(number))


def _named(resource: Resource) -> dict[str, object]:
    return {"type": _type_of(resource), "name": resource.name}


def _type_of(resource: Resource) -> str:
    return resource.type.name.lower().replace("_", "-")


def _details(entries: Sequence[ConfigEntry]) -> list[dict[str, object]]:
    return [
        {
            "name": each.name,
            "value": each.value,
            "source": _source(each.source),
            "read_only": each.is_read_only,
            "sensitive": each.is_sensitive,
            "synonyms": [
                {"name": other.name, "value": other.value, "source": _source(other.source)}
                for other in each.synonyms
            ],
        }
        for each in entries
    ]


def _print_quotas(asking: ClientOptions, found: Sequence[Quotas]) -> None:
    if asking.as_json:
        print_json([{"entity": each.entity, "quotas": each.values} for each in found])
        return
    rows: list[Row] = [
        (_entity_text(entity), name, _number(value))
        for entity, values in found
        for name, value in sorted(values.items())
    ]
    print_table(("of", "quota", "value"), rows)


def _entity_text(entity: Mapping[str, str | None]) -> str:
    return ", ".join(f"{kind} {'(default)' if n is None else n}" for kind, n in entity.items())


def _number(value: float) -> int | str:
    return int(value) if value.is_integer() else str(value)
