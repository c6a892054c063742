"""Prints docs/apis.md: the APIs that are served, and those that are not, with reasons."""

from collections.abc import Iterable, Iterator
from typing import Any

from klog_broker.api.families import BETWEEN_BROKERS, SERVED
from klog_broker.api.unsupported_apis import REASONS, UNKNOWN_APIS
from klog_broker.dispatch.access import Access
from klog_broker.dispatch.api_handler import BrokerApi
from pyspark_klog.protocol import registry
from pyspark_klog.protocol.keys import ApiKey

_HEAD = """\
<!-- Printed by `./dev python -m tools.docs`; edit broker/klog_broker/api/families.py
     and unsupported_apis.py, not this page. -->
# APIs of the broker

An ApiVersions response lists the APIs and versions that a klog broker serves; a client chooses the
newest version that both sides have. The APIs for clients go up to Kafka 4.4's newest stable
versions. The broker closes the connection of a request with an API or version that it does not
serve, as in Kafka; but it answers ApiVersions in any version.

The last column of the first two tables has the operations that Kafka's access control requires for
an API. klog has no access control yet: every client may do everything.

## Served

| API | key | versions | operations that a client needs |
|---|---|---|---|
"""

_BETWEEN_BROKERS = """
## Between brokers

The brokers of a cluster and their controller talk by the APIs of the table below,
at inter.broker.protocol.version 3.5 to 3.9. Only a broker with zookeeper.connect serves these APIs.
On any other listener than the inter-broker listener it answers CLUSTER_AUTHORIZATION_FAILED.

| API | key | versions | operations that a client needs |
|---|---|---|---|
"""


def api_page() -> str:
    """docs/apis.md."""
    lines = [_HEAD + "\n".join(_served(SERVED))]
    lines.append(_BETWEEN_BROKERS + "\n".join(_served(BETWEEN_BROKERS)))
    lines.append("\n## Not served\n\n| API | key | why |\n|---|---|---|")
    served = {row.api_key for row in (*SERVED, *BETWEEN_BROKERS)}
    lines += [
        f"| {registry.find_api(key).name} | {int(key)} | {REASONS[key]} |"
        for key in ApiKey
        if key not in served
    ]
    lines.append("\n## Kafka's others\n\n| APIs | what they are |\n|---|---|")
    lines += [f"| {names} | {why} |" for names, why in UNKNOWN_APIS.items()]
    return "\n".join(lines) + "\n"


def _served(apis: Iterable[BrokerApi[Any]]) -> Iterator[str]:
    for api in sorted(apis, key=lambda each: each.served):
        key, first, last = api.served
        access = ", ".join(map(_access, api.access)) or "none"
        yield f"| {registry.find_api(key).name} | {int(key)} | {first}-{last} | {access} |"


def _access(access: Access) -> str:
    """The operation and the type of the resource, written as in Kafka's documentation."""
    operation, resource_type = access.operation.name, access.resource_type.name
    return f"{_camel_case(operation)} on {_camel_case(resource_type)}"


def _camel_case(name: str) -> str:
    return name.title().replace("_", "")
