"""A broker made of scripts, for answers that a real broker cannot be made to give."""

import socket
import threading
from contextlib import suppress

from pyspark_klog.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from pyspark_klog.protocol.apis.init_producer_id import InitProducerIdResponse
from pyspark_klog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pyspark_klog.protocol.headers import decode_request, encode_response
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response

_SERVED = (
    ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=0),
    ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=8),
    ApiVersion(api_key=ApiKey.PRODUCE, min_version=3, max_version=8),
    ApiVersion(api_key=ApiKey.INIT_PRODUCER_ID, min_version=0, max_version=1),
)


class StandInBroker:
    """The only broker of its cluster: every topic has one partition, whose records go nowhere.
    Subclasses change the answers."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._port = self._listener.getsockname()[1]
        self.bootstrap_servers = f"127.0.0.1:{self._port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Close the listener and every connection, which ends their threads."""
        for opened in (self._listener, *self._connections):
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits there
            opened.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as incoming:
                while size := incoming.read(4):
                    header, request = decode_request(incoming.read(int.from_bytes(size, "big")))
                    response = self._answer(request)
                    connection.sendall(
                        encode_response(header.correlation_id, response, header.api_version)
                    )
        except OSError:
            return

    def _answer(self, request: Request) -> Response:
        if isinstance(request, MetadataRequest):
            return self._topics([row.name or "" for row in request.topics or ()])
        if isinstance(request, ProduceRequest):
            return self._accept_records(request)
        if request.api_key == ApiKey.INIT_PRODUCER_ID:
            return InitProducerIdResponse(producer_id=1, producer_epoch=0)
        return ApiVersionsResponse(api_keys=list(_SERVED))

    def _topics(self, names: list[str]) -> MetadataResponse:
        partition = MetadataResponsePartition(leader_id=0, replica_nodes=[0], isr_nodes=[0])
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=0, host="127.0.0.1", port=self._port)],
            controller_id=0,
            topics=[MetadataResponseTopic(name=name, partitions=[partition]) for name in names],
        )

    def _accept_records(self, request: ProduceRequest) -> ProduceResponse:
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        PartitionProduceResponse(index=row.index) for row in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )
