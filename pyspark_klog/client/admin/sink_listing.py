"""Finds, among the groups of a cluster, those in which klog's exactly-once Spark sinks store their
progress as committed offsets."""

from collections.abc import Iterable

from pyspark_klog.client.admin.groups import Group, committed_offsets
from pyspark_klog.client.admin.sink_progress import SinkGroup, parse_sink_group, parse_sink_id
from pyspark_klog.client.cluster.blocking_client import BlockingClient


def find_sinks(
    client: BlockingClient, groups: Iterable[Group], deadline_ms: int | None = None
) -> dict[str, SinkGroup]:
    """The groups in which exactly-once Spark sinks store their progress, by group id.

    Committed offsets are requested only for groups without members whose id has the form of a
    sink's group id. A group without committed offsets belongs to a sink if another group of the
    same sink has some.
    """
    deadline = client.deadline() if deadline_ms is None else deadline_ms
    found = {}
    for group in groups:
        if group.member_count == 0 and not group.protocol_type and parse_sink_id(group.group_id):
            positions = committed_offsets(client, group.group_id, None, deadline)
            known = parse_sink_group(group.group_id, positions)
            if known is not None:
                found[group.group_id] = known
    sinks = {group.sink for group in found.values() if group.rows or group.marks}
    return {group_id: group for group_id, group in found.items() if group.sink in sinks}
