"""A broker without a network, for the handlers that change topics: a real metadata store on a
folder, and stand-ins for logs and helper threads.
"""

from functools import partial
from pathlib import Path
from types import GeneratorType, SimpleNamespace
from typing import Any

from klog_broker.api import create_topics
from klog_broker.cluster.known_topics import AllSettingsRead, AllTopicsKnown
from klog_broker.config import BrokerConfig, Listener, topic_config
from klog_broker.metadata.image import BrokerRegistration
from klog_broker.metadata.local import LocalStore
from klog_broker.replication.replica_manager import ReplicaManager
from klog_broker.replication.settings_updates import TopicSettings
from klog_broker.resources.authorizer import ALLOWS_ALL
from klog_broker.runtime.disk.files import RealFiles
from klog_broker.topics.announcements import image_changed
from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from pyspark_klog.protocol.codec import decode_message, encode_message
from tests.support.cluster.fake_logs import FakeLogs
from tests.support.cluster.helpers import Helpers
from tests.support.cluster.local_store import SteppedLoop


class World:
    """A broker without a network."""

    def __init__(self, directory: Path, *overrides: str, broker_id: int = 1) -> None:
        config = BrokerConfig.load(overrides=[f"broker.id={broker_id}", *overrides])
        self.directory = directory
        self.broker_id = BrokerId(broker_id)
        self.store = LocalStore.open(RealFiles(), directory, self.broker_id)
        self.helpers = Helpers()
        self.loop = SteppedLoop()
        self.logs = FakeLogs(self.loop)
        self.checked: list[TopicPartition] = []
        self.deleted: list[str] = []
        self.broker: Any = SimpleNamespace(
            config=config,
            broker_id=self.broker_id,
            helpers=self.helpers,
            loop=self.loop,
            logs=self.logs,
            metadata=self.store,
            on_topic_deleted=[self.deleted.append],
            known_topics=AllTopicsKnown(),
            authorizer=ALLOWS_ALL,
            new_topic_settings=AllSettingsRead(),
            other_controller=lambda: None,
        )
        self.start_broker()
        self.store.register_broker(
            BrokerRegistration(self.broker_id, (Listener("P", "PLAINTEXT", "h", 1),))
        )

    def start_broker(self) -> None:
        """Start a broker's parts on the present store and logs."""
        loop: Any = self.loop
        logs: Any = self.logs
        self.broker.replicas = ReplicaManager(
            self.broker_id,
            logs,
            settings_of=self._settings_of,
            wake=self.checked.append,
            call_soon=self.loop.post,
        )
        on_image = partial(image_changed, self.broker)
        apply = self.broker.replicas.apply
        self.store.start(loop, self.helpers, on_image=on_image, apply=apply)
        self.store.elect({})

    def _settings_of(self, name: str) -> TopicSettings:
        topic = self.store.image.topic(name)
        overrides = {} if topic is None else topic.configs
        return TopicSettings.from_topic_config(topic_config(self.broker.config, overrides))

    def call_api(self, module: Any, request: Any, version: int | None = None) -> Any:
        """The response, as a client of that version sees it."""
        (response,) = self.start(module, request, version)
        return response

    def start(self, module: Any, request: Any, version: int | None = None) -> list[Any]:
        """A list that the response is put into."""
        version = request.max_version if version is None else version
        received, _ = decode_message(type(request), version, encode_message(request, version))
        sent: list[Any] = []

        def send(response: Any) -> None:
            data = encode_message(response, version)
            sent.append(decode_message(type(response), version, data)[0])

        def send_all(steps: Any) -> None:
            try:
                while True:
                    next(steps)
            except StopIteration as end:
                if end.value is not None:
                    send(end.value)

        context = SimpleNamespace(
            api_version=version,
            listener="P",
            response_sink=SimpleNamespace(send=send, send_in_slices=send_all),
        )
        response = module.API.handle(self.broker, received, context)
        if isinstance(response, GeneratorType):
            send_all(response)
        elif response is not None:
            send(response)
        return sent

    def create(self, *topics: CreatableTopic, version: int = 7, **more: Any) -> list[Any]:
        request = CreateTopicsRequest(topics=list(topics), **more)
        return self.call_api(create_topics, request, version).topics

    def image_again(self) -> Any:
        return LocalStore.open(RealFiles(), self.directory, self.broker_id).image


def new(
    name: str,
    partitions: int = -1,
    factor: int = -1,
    by_hand: dict[int, list[int]] | None = None,
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=ids)
            for number, ids in (by_hand or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
