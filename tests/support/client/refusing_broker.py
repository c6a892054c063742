"""A broker that refuses: one node whose answers about a topic carry the error that a test wants."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark_klog.errors import ErrorCode
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


class RefusingBroker:
    """``metadata`` is the error of topics in answers to Metadata, ``produce`` to Produce."""

    def __init__(self, metadata: ErrorCode = ErrorCode.NONE, produce: ErrorCode = ErrorCode.NONE):
        self._metadata = metadata
        self._produce = produce
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
            return self._refuse(request)
        if request.api_key == ApiKey.INIT_PRODUCER_ID:
            return InitProducerIdResponse(producer_id=1, producer_epoch=0)
        return ApiVersionsResponse(api_keys=list(_SERVED))

    def _topics(self, names: list[str]) -> MetadataResponse:
        partition = MetadataResponsePartition(leader_id=0, replica_nodes=[0], isr_nodes=[0])
        partitions = [partition] if self._metadata is ErrorCode.NONE else []
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=0, host="127.0.0.1", port=self._port)],
            controller_id=0,
            topics=[
                MetadataResponseTopic(
                    error_code=self._metadata.value, name=name, partitions=partitions
                )
                for name in names
            ],
        )

    def _refuse(self, request: ProduceRequest) -> ProduceResponse:
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        PartitionProduceResponse(index=row.index, error_code=self._produce.value)
                        for row in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )


@contextmanager
def refusing_broker(
    metadata: ErrorCode = ErrorCode.NONE, produce: ErrorCode = ErrorCode.NONE
) -> Iterator[str]:
    """The address of one."""
    broker = RefusingBroker(metadata, produce)
    try:
        yield broker.bootstrap_servers
    finally:
        broker.close()
