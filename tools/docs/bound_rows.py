"""The rows of docs/bounds.md: each fixed limit, its constant, and the effect of exceeding it."""

from typing import NamedTuple


class Bound(NamedTuple):
    """One limit: its subject, the constant that has the value, and the effect of exceeding it."""

    subject: str
    constant: str
    effect: str


_NEXT_TURN = "the rest waits for the next turn"
_CLOSED = "the broker closes the connection"
_UNLIMITED_CACHE = "the broker decodes each request"

SECTIONS: dict[str, tuple[Bound, ...]] = {
    "Requests": (
        Bound("shortest request", "klog_broker.network.bounds.MIN_REQUEST_BYTES", _CLOSED),
        Bound(
            "longest request other than Produce",
            "klog_broker.network.bounds.METADATA_REQUEST_BYTES",
            _CLOSED,
        ),
        Bound(
            "elements of all arrays and tagged fields in one request",
            "klog_broker.dispatch.api_handler.MAX_REQUEST_ELEMENTS",
            _CLOSED,
        ),
        Bound(
            "tagged fields in a request's header",
            "pyspark_klog.protocol.headers.MAX_HEADER_TAGS",
            _CLOSED,
        ),
        Bound(
            "longest request that is decoded without counting its elements first",
            "klog_broker.dispatch.dispatcher.UNCOUNTED_BYTES",
            "the broker counts the elements",
        ),
        Bound(
            "longest such Produce or Fetch request",
            "klog_broker.dispatch.dispatcher.UNCOUNTED_DATA_BYTES",
            "the broker counts the elements",
        ),
        Bound(
            "longest request that the broker recognizes by its bytes and does not decode again",
            "klog_broker.dispatch.cached_requests.CACHED_REQUEST_BYTES",
            _UNLIMITED_CACHE,
        ),
        Bound(
            "longest such Fetch request",
            "klog_broker.fetch.cached_fetch.MAX_FRAME_BYTES",
            _UNLIMITED_CACHE,
        ),
        Bound(
            "partitions of an OffsetCommit that the broker recognizes by its bytes",
            "klog_broker.api.cached_offset_commit.MOST_PARTITIONS",
            _UNLIMITED_CACHE,
        ),
        Bound(
            "work units (such as partitions) in one turn of long responses that began earlier, and"
            " as many of new ones",
            "klog_broker.runtime.event_loop.slices.SLICE_ELEMENTS",
            _NEXT_TURN,
        ),
    ),
    "Topics, settings and quotas": (
        Bound(
            "topics that klog.deleting.topics names",
            "klog_broker.api.describe_configs.MOST_DELETING_NAMED",
            "`klog topics list` does not show the deletion of further ones",
        ),
        Bound(
            "characters of a topic's name",
            "klog_broker.metadata.image.MAX_TOPIC_NAME_LENGTH",
            "INVALID_TOPIC_EXCEPTION",
        ),
        Bound(
            "partitions that one request creates",
            "klog_broker.topics.planning.MAX_PARTITIONS_PER_REQUEST",
            "POLICY_VIOLATION; a Metadata request leaves further topics unknown until the client "
            "asks again",
        ),
        Bound(
            "changes of one topic's or broker's settings in one request",
            "klog_broker.api.alterable_topics.MAX_CHANGES_PER_RESOURCE",
            "INVALID_REQUEST",
        ),
        Bound(
            "dynamic settings of one broker, or of the default for all brokers",
            "klog_broker.topics.broker_settings.MAX_SETTINGS_PER_BROKER",
            "INVALID_REQUEST",
        ),
        Bound(
            "users, clients and addresses with quotas",
            "klog_broker.metadata.changes.MAX_QUOTA_ENTITIES",
            "POLICY_VIOLATION",
        ),
        Bound(
            "changes of the metadata in one write of `klog-metadata`",
            "klog_broker.metadata.change_queue.CHANGES_PER_WRITE",
            "the rest goes into the next write",
        ),
        Bound(
            "partitions that apply a topic's new settings in one turn",
            "klog_broker.replication.settings_updates.PARTITIONS_A_TURN",
            "the rest follows in the next turns, and the response waits for it",
        ),
        Bound(
            "pause before the broker tries again to open logs that failed",
            "klog_broker.metadata.unserved_partitions.RETRY_MS",
            "the broker tries again",
        ),
        Bound(
            "partitions in one such try",
            "klog_broker.metadata.unserved_partitions.RETRIED_AT_ONCE",
            "the rest waits for the next try",
        ),
    ),
    "Records": (
        Bound(
            "decompressed size of one batch",
            "pyspark_klog.records.compression.DEFAULT_MAX_DECOMPRESSED_BYTES",
            "MESSAGE_TOO_LARGE",
        ),
        Bound(
            "records of one compressed batch, or of one message set of Produce 0 to 2",
            "klog_broker.log.validation.record_checks.MAX_RECORDS",
            "MESSAGE_TOO_LARGE; producers then send smaller batches",
        ),
        Bound(
            "faulty records of a batch that a response names",
            "klog_broker.log.validation.record_checks.NAMED_FAULTS",
            "the error message has the number of the others",
        ),
        Bound(
            "work to validate one batch in the event loop, in decompressed bytes",
            "klog_broker.log.validation.loop_share.BATCH_WORK_BYTES",
            "a helper thread validates the batch; only this connection waits",
        ),
        Bound(
            "work to validate all batches of one turn",
            "klog_broker.log.validation.loop_share.TURN_WORK_BYTES",
            "a helper thread validates the batch; only this connection waits",
        ),
        Bound(
            "batches that helper threads validate at the same time",
            "klog_broker.produce.append_validation.BATCHES_AT_ONCE",
            "further batches wait, and the connections take turns",
        ),
        Bound(
            "batches of a producer and partition among which the broker recognizes a repeated one",
            "klog_broker.log.producers.producer_state.WINDOW_BATCHES",
            "OUT_OF_ORDER_SEQUENCE_NUMBER",
        ),
        Bound(
            "records that a look-up by timestamp reads in the event loop",
            "klog_broker.log.read.log_reader.MAX_RECORDS_SEARCHED_IN_LOOP",
            "a helper thread reads them",
        ),
    ),
    "Fetch": (
        Bound(
            "partitions of all fetch sessions together",
            "klog_broker.fetch.sessions.MAX_PARTITIONS",
            "the broker ends sessions that were unused for two minutes; if that is not enough, the "
            "client fetches without a session",
        ),
        Bound(
            "work to convert records down for one response",
            "klog_broker.fetch.down_conversion.RESPONSE_WORK_BYTES",
            "the rest comes with the next fetch; a response has at least one batch",
        ),
        Bound(
            "converted records that wait to be sent, of all connections",
            "klog_broker.fetch.down_conversion.UNSENT_BYTES",
            "further conversions wait",
        ),
        Bound(
            "batch headers that one Fetch 0 to 3 reads to find batches with records",
            "klog_broker.fetch.reader.MAX_HEADERS",
            "the rest comes with the next fetch",
        ),
    ),
    "Groups and transactions": (
        Bound(
            "assignors that a member of a group offers",
            "klog_broker.coordinator.group.coordinator.MAX_PROTOCOLS",
            "INCONSISTENT_GROUP_PROTOCOL",
        ),
        Bound(
            "member ids of a group that no member has joined with yet",
            "klog_broker.coordinator.group.classic.group_machine.MAX_PENDING_IDS",
            "the group forgets the oldest: UNKNOWN_MEMBER_ID, and the client gets a new id",
        ),
        Bound(
            "partitions of one OffsetCommit that are appended in one turn",
            "klog_broker.api.offset_commit.COMMITS_AT_ONCE",
            _NEXT_TURN,
        ),
        Bound(
            "offsets of a group that expire or are deleted in one batch",
            "klog_broker.coordinator.group.offset_cleanup.TOMBSTONES_AT_ONCE",
            "the rest goes into the next batch",
        ),
        Bound(
            "bytes of a coordinator's partition that one read loads",
            "klog_broker.coordinator.loading.LOAD_READ_BYTES",
            "the next read follows when these records are applied",
        ),
        Bound(
            "decompressed size of the batches of one such read",
            "klog_broker.coordinator.loading.MOST_INFLATED_BYTES",
            "further batches are left to the next read",
        ),
        Bound(
            "partitions in one request of a transaction coordinator to another broker",
            "klog_broker.coordinator.broker_request_sender.MOST_PARTITIONS",
            "other transactions go into the next request; one transaction is never divided",
        ),
        Bound(
            "how long the coordinator waits for the response",
            "klog_broker.coordinator.broker_request_sender.REQUEST_TIMEOUT_MS",
            "the coordinator connects and sends the request again",
        ),
    ),
    "Connections": (
        Bound(
            "received from one connection in one turn",
            "klog_broker.network.bounds.RECEIVE_BYTES",
            _NEXT_TURN,
        ),
        Bound(
            "received from one connection in one turn while it produces in bulk; ready connections"
            " share it",
            "klog_broker.network.bounds.BULK_RECEIVE_BYTES",
            _NEXT_TURN,
        ),
        Bound(
            "received in one turn within a request of RECEIVE_BYTES or more",
            "klog_broker.network.bounds.LARGE_RECEIVE_BYTES",
            _NEXT_TURN,
        ),
        Bound(
            "received from all connections in one turn, except within such large requests",
            "klog_broker.network.bounds.ARENA_BYTES",
            _NEXT_TURN,
        ),
        Bound(
            "least part of ARENA_BYTES that must be left to receive from another connection",
            "klog_broker.network.bounds.LEAST_RECEIVE_BYTES",
            "the connection waits for the next turn",
        ),
        Bound(
            "free buffers that are kept for large requests",
            "klog_broker.network.bounds.POOLED_BYTES",
            "the broker frees further buffers",
        ),
        Bound(
            "requests of one connection that are started in one turn",
            "klog_broker.network.bounds.REQUESTS_PER_TURN",
            _NEXT_TURN,
        ),
        Bound(
            "requests of one connection without a sent response",
            "klog_broker.network.bounds.PENDING_RESPONSES",
            "the connection's next request waits",
        ),
        Bound(
            "responses in memory that wait to be sent to one connection",
            "klog_broker.network.bounds.PENDING_RESPONSE_BYTES",
            "the connection's next request waits",
        ),
        Bound(
            "sent to one connection in one turn",
            "klog_broker.network.bounds.SEND_BYTES",
            _NEXT_TURN,
        ),
        Bound(
            "piece of a file whose two ends are probed for the page cache before it is sent",
            "klog_broker.network.bounds.PROBED_BYTES",
            "the next piece is probed separately",
        ),
        Bound(
            "bytes that a helper thread reads ahead if a piece is not in the page cache",
            "klog_broker.network.bounds.READ_AHEAD_BYTES",
            "the rest is read ahead later",
        ),
        Bound(
            "connections accepted on one listener in one turn",
            "klog_broker.network.bounds.ACCEPTS_PER_TURN",
            _NEXT_TURN,
        ),
        Bound(
            "pause of a listener that found no descriptor or no memory",
            "klog_broker.network.bounds.ACCEPT_PAUSE_MS",
            "the listener accepts connections again",
        ),
        Bound(
            "file descriptors that a start needs",
            "klog_broker.runtime.system.descriptors.LEAST_DESCRIPTORS",
            "with fewer, the start is refused",
        ),
        Bound(
            "tries, one each second, to truncate a log while no descriptor is free",
            "klog_broker.log.maintenance.record_removal.TRIES_WITHOUT_DESCRIPTORS",
            "the log goes offline",
        ),
    ),
    "Clusters": (
        Bound(
            "elements of one request between brokers",
            "klog_broker.cluster.broker_requests.MAX_ELEMENTS",
            _CLOSED,
        ),
        Bound(
            "number of a partition in a controller's request",
            "klog_broker.cluster.broker_requests.MAX_PARTITIONS",
            "the broker ignores the partition, or answers INVALID_REQUEST",
        ),
        Bound(
            "replicas that change their role in one turn",
            "klog_broker.cluster.broker_requests.ROLE_CHANGES_PER_TURN",
            _NEXT_TURN,
        ),
        Bound(
            "role changes that are applied at the same time (each may create or delete a log)",
            "klog_broker.replication.role_change_batch.CONCURRENT_ROLE_CHANGES",
            "further role changes wait",
        ),
        Bound(
            "partitions in one Fetch of a follower, with a fetch session",
            "klog_broker.replication.fetcher.MOST_NAMED",
            "the next Fetch adds more; until then the leader does not let the Fetch wait",
        ),
        Bound(
            "partitions in one Fetch of a follower, without a fetch session",
            "klog_broker.replication.fetcher.MOST_WHOLE",
            "the next Fetch has the next ones, and the leader lets each wait for a part of "
            "`replica.fetch.wait.max.ms`",
        ),
        Bound(
            "partitions and brokers in requests that wait for one broker, in addition to four "
            "times the cluster's partitions",
            "klog_broker.controller.zookeeper.cluster_state.MIN_QUEUE_SIZE",
            "the controller drops the requests and sends the whole state once the broker answers",
        ),
        Bound(
            "partitions whose state a controller changes in one turn",
            "klog_broker.controller.zookeeper.znode_writer.PARTITIONS_A_TURN",
            _NEXT_TURN,
        ),
        Bound(
            "partitions that a controller looks at in one turn",
            "klog_broker.controller.zookeeper.znode_writer.LOOKED_AT_A_TURN",
            _NEXT_TURN,
        ),
        Bound(
            "size from which a controller sends only one request in a turn",
            "klog_broker.controller.zookeeper.request_sender.LARGE_REQUEST",
            _NEXT_TURN,
        ),
        Bound(
            "producer ids that a controller gives a broker at once",
            "klog_broker.controller.zookeeper.controller_requests.PRODUCER_IDS_A_BLOCK",
            "the broker asks for more before they are used up",
        ),
        Bound(
            "how long a request waits for the topics that it creates automatically",
            "klog_broker.cluster.topic_requests.AUTO_CREATION_TIMEOUT_MS",
            "LEADER_NOT_AVAILABLE, and the client asks again",
        ),
        Bound(
            "requests to ZooKeeper without a response",
            "klog_broker.runtime.zookeeper.sessions.REQUESTS_IN_FLIGHT",
            "further requests wait",
        ),
        Bound(
            "size of one request to ZooKeeper",
            "klog_broker.runtime.zookeeper.sessions.MAX_REQUEST_BYTES",
            "the broker does not send the request; the connection stays open",
        ),
        Bound(
            "unreadable znodes that the broker remembers to have logged",
            "klog_broker.metadata.zookeeper.bad_znodes.MAX_NAMED",
            "the oldest may be logged again",
        ),
        Bound(
            "how long a change of settings waits for ZooKeeper",
            "klog_broker.metadata.zookeeper.settings.CHANGE_TIMEOUT_MS",
            "REQUEST_TIMED_OUT; the change may still be made later",
        ),
        Bound(
            "age of a notification about changed settings in ZooKeeper",
            "klog_broker.metadata.zookeeper.settings.KEPT_MS",
            "the next notification deletes it",
        ),
    ),
    "Metrics listener": (
        Bound(
            "HTTP connections",
            "klog_broker.monitoring.http_listener.MAX_CONNECTIONS",
            "status 503, and the broker closes the connection",
        ),
        Bound(
            "partitions that /ready names for each failure",
            "klog_broker.monitoring.health.MOST_NAMES",
            "further ones are only counted",
        ),
        Bound(
            "line and headers of an HTTP request",
            "klog_broker.monitoring.http_reader.MAX_HEAD_BYTES",
            "status 431, and the broker closes the connection",
        ),
        Bound(
            "wait for the rest of an HTTP request",
            "klog_broker.monitoring.connection.HEAD_MS",
            _CLOSED,
        ),
        Bound(
            "time until the client has taken the response",
            "klog_broker.monitoring.connection.ANSWER_MS",
            _CLOSED,
        ),
        Bound(
            "wait for the next HTTP request",
            "klog_broker.monitoring.connection.IDLE_MS",
            _CLOSED,
        ),
        Bound(
            "received from an HTTP connection in one turn",
            "klog_broker.monitoring.connection.RECEIVE_BYTES",
            _NEXT_TURN,
        ),
        Bound(
            "sent to an HTTP connection in one turn",
            "klog_broker.monitoring.connection.SEND_BYTES",
            _NEXT_TURN,
        ),
        Bound(
            "work units of rendering metrics in one turn",
            "klog_broker.monitoring.scrapes.SLICE_ELEMENTS",
            _NEXT_TURN,
        ),
        Bound(
            "age of a rendered text that is sent again",
            "klog_broker.monitoring.scrapes.CACHED_MS",
            "the broker renders the metrics again",
        ),
    ),
    "Client and connector": (
        Bound(
            "response that the client accepts",
            "pyspark_klog.client.transport.connection.MAX_RESPONSE_BYTES",
            "the client closes the connection",
        ),
        Bound(
            "response before the connection is authenticated and ready",
            "pyspark_klog.client.transport.connection.MAX_STRANGERS_RESPONSE_BYTES",
            "the client closes the connection",
        ),
        Bound(
            "SCRAM iterations that a broker may ask for",
            "pyspark_klog.security.scram.MAX_ITERATIONS",
            "the login fails",
        ),
        Bound(
            "truststore or keystore",
            "pyspark_klog.client.security.stores.MAX_STORE_BYTES",
            "the client refuses the file",
        ),
    ),
}
