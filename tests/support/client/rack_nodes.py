"""Two nodes with one log, in two racks: a leader that names the follower to readers of its rack."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from pyspark_klog.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from pyspark_klog.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pyspark_klog.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pyspark_klog.protocol.headers import decode_request, encode_response
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response
from pyspark_klog.records.builder import BatchBuilder

LEADER, FOLLOWER = 1, 2
TOPIC, RECORDS_PER_REPLY = "t", 10

_NEWEST = {
    ApiKey.API_VERSIONS: 4,
    ApiKey.METADATA: 8,
    ApiKey.LIST_OFFSETS: 2,
    ApiKey.FETCH: 11,  # the first with racks
}


class RackNodes:
    """Partition 0 of topic ``t`` has records of the values 0 to ``count`` (exclusive).

    ``served`` has the node of each reply with records, ``racks`` the rack that each request to the
    leader named. ``trouble`` is asked before the follower gives records from an offset.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.served: list[int] = []
        self.racks: list[str] = []
        self.trouble: Callable[[int], ErrorCode] = lambda _: ErrorCode.NONE
        self._connections: list[socket.socket] = []
        self._listeners = {n: socket.create_server(("127.0.0.1", 0)) for n in (LEADER, FOLLOWER)}
        self._ports = {n: listener.getsockname()[1] for n, listener in self._listeners.items()}
        self.bootstrap_servers = f"127.0.0.1:{self._ports[LEADER]}"
        for node in self._listeners:
            threading.Thread(target=self._accept, args=(node,), daemon=True).start()

    def close(self) -> None:
        """Close the listeners and every connection, which ends their threads."""
        for opened in (*self._listeners.values(), *self._connections):
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits there
            opened.close()

    def _accept(self, node: int) -> None:
        while True:
            try:
                connection, _ = self._listeners[node].accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(node, connection), daemon=True).start()

    def _serve(self, node: int, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as incoming:
            while size := incoming.read(4):
                header, request = decode_request(incoming.read(int.from_bytes(size, "big")))
                response = self._answer(node, request)
                version = min(header.api_version, _NEWEST[ApiKey(request.api_key)])
                connection.sendall(encode_response(header.correlation_id, response, version))

    def _answer(self, node: int, request: Request) -> Response:
        if isinstance(request, ApiVersionsRequest):
            return ApiVersionsResponse(
                api_keys=[
                    ApiVersion(api_key=key, min_version=0, max_version=newest)
                    for key, newest in _NEWEST.items()
                ]
            )
        if isinstance(request, FetchRequest):
            row = self._fetch(node, request.topics[0].partitions[0].fetch_offset, request.rack_id)
            return FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, partitions=[row])])
        if isinstance(request, ListOffsetsRequest):
            return self._offsets(request)
        return self._metadata()

    def _metadata(self) -> MetadataResponse:
        nodes = [LEADER, FOLLOWER]
        partition = MetadataResponsePartition(
            leader_id=LEADER, replica_nodes=nodes, isr_nodes=nodes
        )
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node, host="127.0.0.1", port=port)
                for node, port in self._ports.items()
            ],
            controller_id=LEADER,
            topics=[MetadataResponseTopic(name=TOPIC, partitions=[partition])],
        )

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        rows = [
            ListOffsetsPartitionResponse(
                partition_index=row.partition_index,
                offset=self.count if row.timestamp == -1 else 0,
            )
            for row in request.topics[0].partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=rows)])

    def _fetch(self, node: int, offset: int, rack: str) -> PartitionData:
        row = PartitionData(high_watermark=self.count, last_stable_offset=self.count, records=b"")
        if node == LEADER:
            self.racks.append(rack)
            if rack == "near-the-follower":
                row.preferred_read_replica = FOLLOWER
                return row
        else:
            code = self.trouble(offset)
            if code is not ErrorCode.NONE:
                row.error_code = code.value
                return row
        self.served.append(node)
        builder = BatchBuilder(offset)
        for number in range(offset, min(offset + RECORDS_PER_REPLY, self.count)):
            builder.append(None, b"%d" % number, 1_000)
        row.records = builder.build()
        return row


@contextmanager
def rack_nodes(count: int) -> Iterator[RackNodes]:
    """Two of them, which go at the end."""
    nodes = RackNodes(count)
    try:
        yield nodes
    finally:
        nodes.close()
