"""The evented client in memory: the broker's loop by hand, streams, and the broker at their end."""

from dataclasses import dataclass

from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.backoff import Backoff
from pyspark_klog.client.transport.evented_connection import EventedConnection, EventedSettings
from pyspark_klog.client.transport.preparation import Prepare
from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.apis.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from pyspark_klog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from pyspark_klog.protocol.headers import decode_request, encode_response
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response
from tests.support.cluster.virtual_time import VirtualTime
from tests.support.runtime.fake_network import FakeNetwork, FakeStream

ADDRESS = Address("10.0.0.7", 9092)
VERSIONS = ((ApiKey.API_VERSIONS, 0, 4), (ApiKey.METADATA, 0, 12), (ApiKey.PRODUCE, 3, 12))
DEFAULTS = EventedSettings(client_id="test", setup_timeout_ms=5_000, reconnect=Backoff(100, 400))


class KeptStream(FakeStream):
    """A stream that keeps the buffers of each send."""

    def __init__(self, fd: int, address: str) -> None:
        super().__init__(fd, address)
        self.pieces: list[memoryview] = []

    def send(self, parts: list[memoryview]) -> int:
        self.pieces += parts
        return super().send(parts)


class ConnectingNetwork(FakeNetwork):
    """Connects as the test wants: at once, not yet, or with an error from the call itself."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, int, str | None]] = []
        self.refuses: OSError | ValueError | None = None
        self.is_slow = False
        self.opened: list[KeptStream] = []

    def connect(self, host: str, port: int, from_address: str | None = None) -> KeptStream:
        self.asked.append((host, port, from_address))
        if self.refuses is not None:
            raise self.refuses
        stream = KeptStream(100 + len(self.opened), host)
        if self.is_slow:
            stream.room_bytes = 0
        self.opened.append(stream)
        self.streams[stream.fileno()] = stream
        return stream


@dataclass(frozen=True)
class Asked:
    """A request as it came to the broker."""

    correlation_id: int
    version: int
    message: Request


class BrokerEnd:
    """The broker's end of a stream: reads requests, writes replies."""

    def __init__(self, stream: KeptStream) -> None:
        self.stream = stream
        self._read_bytes = 0

    def requests(self) -> list[Asked]:
        """The requests that have come whole since the last call."""
        found = []
        data = bytes(self.stream.sent)
        while len(data) - self._read_bytes >= 4:
            start = self._read_bytes + 4
            end = start + int.from_bytes(data[start - 4 : start], "big")
            if end > len(data):
                break
            header, message = decode_request(data[start:end])
            found.append(Asked(header.correlation_id, header.api_version, message))
            self._read_bytes = end
        return found

    def topics(self) -> list[str]:
        """The names of the topics that new requests for metadata ask for, and nothing else."""
        return [topic_of(asked) for asked in self.requests()]

    def reply_to(self, asked: Asked) -> None:
        """Respond with the API versions, or with metadata whose cluster id is the topic's name."""
        self.stream.inbox += reply_bytes(asked)


def topic_of(asked: Asked) -> str:
    assert isinstance(asked.message, MetadataRequest)
    [topic] = asked.message.topics or []
    assert topic.name is not None
    return topic.name


def reply_bytes(asked: Asked) -> bytes:
    """The whole frame of a broker's reply to ApiVersions or Metadata."""
    response: Response
    if isinstance(asked.message, ApiVersionsRequest):
        rows = [
            ApiVersion(api_key=k, min_version=low, max_version=high) for k, low, high in VERSIONS
        ]
        response = ApiVersionsResponse(api_keys=rows)
    else:
        response = MetadataResponse(cluster_id=topic_of(asked))
    return encode_response(asked.correlation_id, response, asked.version)


class EventedWorld(VirtualTime):
    """One connection with its settings and its loop, and the results of its callbacks, in order."""

    def __init__(
        self, settings: EventedSettings = DEFAULTS, prepare: Prepare | None = None
    ) -> None:
        self.network = ConnectingNetwork()
        super().__init__(poller=self.network.poller)
        self.chance = 0.5
        self.answers: list[tuple[str, str | KlogError]] = []
        self.connection = EventedConnection(
            ADDRESS,
            settings,
            loop=self.loop,
            connector=self.network,
            random=lambda: self.chance,
            prepare=prepare,
        )

    def request_metadata(self, name: str, timeout_ms: int = 1_000) -> None:
        """Ask for metadata of a topic; `answers` gets its name with the cluster id or error."""
        self.connection.send(
            MetadataResponse,
            lambda _: metadata_request(name),
            lambda reply, error: self.note(name, reply, error),
            timeout_ms,
        )

    def note(self, name: str, reply: MetadataResponse | None, error: KlogError | None) -> None:
        assert (reply is None) != (error is None)
        self.answers.append((name, error if error is not None else str(reply and reply.cluster_id)))

    @property
    def broker(self) -> BrokerEnd:
        """The broker's end of the newest stream, from its first byte."""
        return BrokerEnd(self.network.opened[-1])

    def ready(self) -> BrokerEnd:
        """The connection is made, for a request of the name "first" that was answered."""
        self.request_metadata("first")
        self.turns()
        broker = self.broker
        for _ in ("versions", "metadata"):
            [asked] = broker.requests()
            broker.reply_to(asked)
            self.turns()
        assert self.taken() == [("first", "first")]
        return broker

    def taken(self) -> list[tuple[str, str]]:
        """The answers since the last call, errors as the name of their class."""
        answers, self.answers = self.answers, []
        return [(n, a if isinstance(a, str) else type(a).__name__) for n, a in answers]

    def error(self) -> str:
        """The error text of the newest response."""
        _, error = self.answers[-1]
        assert isinstance(error, KlogError)
        return str(error)


def metadata_request(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)])
