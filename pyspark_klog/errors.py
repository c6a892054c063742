"""KlogError, the base class of klog's exceptions for callers and users, and Kafka's error codes."""

from __future__ import annotations

from enum import IntEnum


class KlogError(Exception):
    """Base class of klog's exceptions. Most texts name the fault, the expected value and a cure."""


class ClientError(KlogError):
    """Base class of the errors of klog's client; `retriable`: the same call may succeed later."""

    retriable = False


class InvariantViolation(KlogError):
    """A check that protects data has failed: klog has a bug or a file is damaged.

    Bad input from a client or a user never raises this error.
    """


_RETRY = "retry"
_REFRESH = "refresh and retry"


class ErrorCode(IntEnum):
    """Kafka's error codes as of Kafka 4.3; ``ErrorCode(n)`` raises ValueError for other numbers.

    ``message`` describes the error in klog's words. ``retriable``: the same request may succeed
    later. ``refresh_metadata``: the client should fetch the partition leaders again before it
    retries.
    """

    message: str
    retriable: bool
    refresh_metadata: bool

    def __new__(cls, code: int, message: str = "", kind: str = "") -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.message = message
        member.retriable = bool(kind)
        member.refresh_metadata = kind == _REFRESH
        return member

    UNKNOWN_SERVER_ERROR = (-1, "something unexpected went wrong in the broker; its log says more")
    NONE = (0, "no error")
    OFFSET_OUT_OF_RANGE = (1, "the offset is outside the partition's log")
    CORRUPT_MESSAGE = (
        2,
        "the batch is damaged (CRC, size, structure), or lacks a key in a compacted topic",
        _RETRY,
    )
    UNKNOWN_TOPIC_OR_PARTITION = (3, "the broker has no such topic or partition", _REFRESH)
    INVALID_FETCH_SIZE = (4, "the fetch size is not allowed")
    LEADER_NOT_AVAILABLE = (5, "the partition has no leader at the moment", _REFRESH)
    NOT_LEADER_OR_FOLLOWER = (
        6,
        "the broker is not the partition's leader, or holds no replica of it",
        _REFRESH,
    )
    REQUEST_TIMED_OUT = (
        7,
        "the broker did not finish in the time that the request gave it",
        _RETRY,
    )
    BROKER_NOT_AVAILABLE = (8, "the broker is not available")
    REPLICA_NOT_AVAILABLE = (9, "the replica is not available on this broker", _REFRESH)
    MESSAGE_TOO_LARGE = (10, "a batch is larger than the broker or the topic accepts")
    STALE_CONTROLLER_EPOCH = (11, "the sender is a controller that has been replaced")
    OFFSET_METADATA_TOO_LARGE = (12, "the metadata of a committed offset is too long")
    NETWORK_EXCEPTION = (13, "the connection ended before the answer came", _REFRESH)
    COORDINATOR_LOAD_IN_PROGRESS = (14, "the coordinator is still loading its state", _RETRY)
    COORDINATOR_NOT_AVAILABLE = (15, "there is no coordinator yet", _RETRY)
    NOT_COORDINATOR = (16, "this broker does not coordinate the group or transactional id", _RETRY)
    INVALID_TOPIC_EXCEPTION = (17, "the topic's name is not allowed, or the topic is internal")
    RECORD_LIST_TOO_LARGE = (18, "the batch is larger than a segment of the log")
    NOT_ENOUGH_REPLICAS = (
        19,
        "fewer replicas are in sync than min.insync.replicas asks for, or the leader runs on klog"
        " and has too little free disk space; nothing was appended",
        _RETRY,
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "appended, but fewer replicas are in sync than min.insync.replicas asks for",
        _RETRY,
    )
    INVALID_REQUIRED_ACKS = (21, "acks must be 0, 1 or -1")
    ILLEGAL_GENERATION = (22, "the generation is not the group's current one")
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        "the member shares no protocol with its group, or named none",
    )
    INVALID_GROUP_ID = (24, "the group id is not allowed")
    UNKNOWN_MEMBER_ID = (25, "the group has no such member")
    INVALID_SESSION_TIMEOUT = (
        26,
        "the session timeout is outside group.min and group.max.session.timeout.ms",
    )
    REBALANCE_IN_PROGRESS = (27, "the group is rebalancing; the member has to join again")
    INVALID_COMMIT_OFFSET_SIZE = (28, "the offsets to commit are too large together")
    TOPIC_AUTHORIZATION_FAILED = (29, "not authorized for the topic")
    GROUP_AUTHORIZATION_FAILED = (30, "not authorized for the group")
    CLUSTER_AUTHORIZATION_FAILED = (31, "not authorized for the cluster")
    INVALID_TIMESTAMP = (32, "a record's timestamp is outside the topic's bounds")
    UNSUPPORTED_SASL_MECHANISM = (33, "the broker does not have this SASL mechanism")
    ILLEGAL_SASL_STATE = (34, "the request does not fit the state of the SASL exchange")
    UNSUPPORTED_VERSION = (35, "the broker does not have this version of the API")
    TOPIC_ALREADY_EXISTS = (36, "a topic of this name exists")
    INVALID_PARTITIONS = (37, "the number of partitions is not allowed")
    INVALID_REPLICATION_FACTOR = (
        38,
        "the replication factor is below 1 or above the number of brokers",
    )
    INVALID_REPLICA_ASSIGNMENT = (39, "the replica assignment is not allowed")
    INVALID_CONFIG = (40, "the configuration is not allowed")
    NOT_CONTROLLER = (41, "this broker is not the controller", _RETRY)
    INVALID_REQUEST = (42, "the request is malformed or contradicts itself")
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (43, "the topic's message format cannot do what was asked")
    POLICY_VIOLATION = (44, "a policy of the broker forbids it")
    OUT_OF_ORDER_SEQUENCE_NUMBER = (45, "the producer's sequence numbers have a gap")
    DUPLICATE_SEQUENCE_NUMBER = (46, "the producer's batch was appended before")
    INVALID_PRODUCER_EPOCH = (
        47,
        "the producer's epoch is older than the one that the broker knows",
    )
    INVALID_TXN_STATE = (48, "the transaction's state does not allow the operation")
    INVALID_PRODUCER_ID_MAPPING = (49, "the producer id does not belong to the transactional id")
    INVALID_TRANSACTION_TIMEOUT = (
        50,
        "the transaction timeout is longer than transaction.max.timeout.ms",
    )
    CONCURRENT_TRANSACTIONS = (51, "another operation on the transaction is under way", _RETRY)
    TRANSACTION_COORDINATOR_FENCED = (52, "the sender no longer coordinates the transaction")
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (53, "not authorized for the transactional id")
    SECURITY_DISABLED = (54, "the broker has no authorizer")
    OPERATION_NOT_ATTEMPTED = (55, "another part of the request failed, so this one was not tried")
    KAFKA_STORAGE_ERROR = (56, "the disk failed under the partition's log", _REFRESH)
    LOG_DIR_NOT_FOUND = (57, "the broker has no such log directory")
    SASL_AUTHENTICATION_FAILED = (58, "the SASL credentials were refused")
    UNKNOWN_PRODUCER_ID = (59, "the broker no longer knows this producer id")
    REASSIGNMENT_IN_PROGRESS = (60, "a reassignment of the partition is under way")
    DELEGATION_TOKEN_AUTH_DISABLED = (61, "the broker has delegation tokens switched off")
    DELEGATION_TOKEN_NOT_FOUND = (62, "there is no such delegation token")
    DELEGATION_TOKEN_OWNER_MISMATCH = (
        63,
        "the principal is neither owner nor renewer of the token",
    )
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        "delegation tokens cannot be asked for on this connection",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = (65, "not authorized for the delegation token")
    DELEGATION_TOKEN_EXPIRED = (66, "the delegation token has expired")
    INVALID_PRINCIPAL_TYPE = (67, "the broker does not know this type of principal")
    NON_EMPTY_GROUP = (68, "the group has members")
    GROUP_ID_NOT_FOUND = (69, "there is no such group")
    FETCH_SESSION_ID_NOT_FOUND = (70, "there is no such fetch session on the broker", _RETRY)
    INVALID_FETCH_SESSION_EPOCH = (71, "the fetch session's epoch is not the expected one", _RETRY)
    LISTENER_NOT_FOUND = (
        72,
        "the leader does not have the listener that the request came through",
        _REFRESH,
    )
    TOPIC_DELETION_DISABLED = (73, "the broker has topic deletion switched off")
    FENCED_LEADER_EPOCH = (74, "the request's leader epoch is older than the partition's", _REFRESH)
    UNKNOWN_LEADER_EPOCH = (75, "the request's leader epoch is newer than the broker's", _RETRY)
    UNSUPPORTED_COMPRESSION_TYPE = (
        76,
        "the client's version cannot read the compression of this partition",
    )
    STALE_BROKER_EPOCH = (77, "the broker's epoch has changed")
    OFFSET_NOT_AVAILABLE = (78, "a new leader does not know its high watermark yet", _RETRY)
    MEMBER_ID_REQUIRED = (79, "the member has to join again with the id that it was given")
    PREFERRED_LEADER_NOT_AVAILABLE = (80, "the preferred leader is not available", _REFRESH)
    GROUP_MAX_SIZE_REACHED = (81, "the group has as many members as group.max.size allows")
    FENCED_INSTANCE_ID = (82, "another member has taken over this group.instance.id")
    ELIGIBLE_LEADERS_NOT_AVAILABLE = (83, "no replica may become the leader", _REFRESH)
    ELECTION_NOT_NEEDED = (84, "the partition has the right leader already", _REFRESH)
    NO_REASSIGNMENT_IN_PROGRESS = (85, "no reassignment of the partition is under way")
    GROUP_SUBSCRIBED_TO_TOPIC = (86, "members of the group are subscribed to the topic")
    INVALID_RECORD = (87, "a record failed the broker's validation")
    UNSTABLE_OFFSET_COMMIT = (88, "open transactions hold back the offsets", _RETRY)
    THROTTLING_QUOTA_EXCEEDED = (89, "the quota is used up for now", _RETRY)
    PRODUCER_FENCED = (90, "a newer producer uses the same transactional id")
    RESOURCE_NOT_FOUND = (91, "there is no such resource")
    DUPLICATE_RESOURCE = (92, "the request names a resource twice")
    UNACCEPTABLE_CREDENTIAL = (93, "the credential is not acceptable")
    INCONSISTENT_VOTER_SET = (94, "the sender or the receiver is not among the expected voters")
    INVALID_UPDATE_VERSION = (95, "the version of the update is not allowed")
    FEATURE_UPDATE_FAILED = (96, "the features could not be updated")
    PRINCIPAL_DESERIALIZATION_FAILURE = (97, "the principal of a forwarded request is unreadable")
    SNAPSHOT_NOT_FOUND = (98, "there is no such snapshot")
    POSITION_OUT_OF_RANGE = (99, "the position is outside the snapshot")
    UNKNOWN_TOPIC_ID = (100, "the broker has no topic with this id", _REFRESH)
    DUPLICATE_BROKER_REGISTRATION = (101, "another broker runs under this id")
    BROKER_ID_NOT_REGISTERED = (102, "no broker is registered under this id")
    INCONSISTENT_TOPIC_ID = (103, "the log's topic id is not the request's", _REFRESH)
    INCONSISTENT_CLUSTER_ID = (104, "the request is meant for another cluster")
    TRANSACTIONAL_ID_NOT_FOUND = (105, "there is no such transactional id")
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106,
        "a fetch session mixes topics with ids and without",
        _RETRY,
    )
    INELIGIBLE_REPLICA = (107, "a replica that was named cannot be in the in-sync set")
    NEW_LEADER_ELECTED = (108, "the update was made, and another leader was elected")
    OFFSET_MOVED_TO_TIERED_STORAGE = (109, "the offset is in tiered storage")
    FENCED_MEMBER_EPOCH = (
        110,
        "the member's epoch is fenced; it has to give up its partitions and join again",
    )
    UNRELEASED_INSTANCE_ID = (111, "another member still holds this group.instance.id")
    UNSUPPORTED_ASSIGNOR = (112, "the group does not have this assignor")
    STALE_MEMBER_EPOCH = (113, "the member's epoch is old; its next heartbeat brings the new one")
    MISMATCHED_ENDPOINT_TYPE = (114, "the endpoint is of the other type, broker or controller")
    UNSUPPORTED_ENDPOINT_TYPE = (115, "there is no support for this type of endpoint")
    UNKNOWN_CONTROLLER_ID = (116, "there is no such controller")
    UNKNOWN_SUBSCRIPTION_ID = (117, "the telemetry subscription is unknown or out of date")
    TELEMETRY_TOO_LARGE = (118, "the telemetry is larger than the broker accepts")
    INVALID_REGISTRATION = (119, "the broker's registration was refused")
    TRANSACTION_ABORTABLE = (
        120,
        "the transaction has to be aborted; its id can be used again afterwards",
    )
    INVALID_RECORD_STATE = (121, "the record's state does not allow the acknowledgement")
    SHARE_SESSION_NOT_FOUND = (122, "there is no such share session", _RETRY)
    INVALID_SHARE_SESSION_EPOCH = (123, "the share session's epoch is not the expected one", _RETRY)
    FENCED_STATE_EPOCH = (124, "the share group's state has another epoch")
    INVALID_VOTER_KEY = (125, "the voter's key is not the receiver's")
    DUPLICATE_VOTER = (126, "there is such a voter already")
    VOTER_NOT_FOUND = (127, "there is no such voter")
    INVALID_REGULAR_EXPRESSION = (128, "the regular expression is not valid")
    REBOOTSTRAP_REQUIRED = (129, "the client's metadata is too old; it has to bootstrap again")
    STREAMS_INVALID_TOPOLOGY = (130, "the topology is not valid")
    STREAMS_INVALID_TOPOLOGY_EPOCH = (131, "the topology's epoch is not valid")
    STREAMS_TOPOLOGY_FENCED = (132, "the topology's epoch is old")
    SHARE_SESSION_LIMIT_REACHED = (
        133,
        "the broker has as many share sessions as it allows",
        _RETRY,
    )
    GROUP_DELETION_FAILED = (134, "the group could not be deleted")
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = (
        135,
        "the description of the topology could not be updated",
    )
    CONTROLLER_ID_NOT_REGISTERED = (136, "no controller of this id is registered")


class BrokerError(KlogError):
    """An error code that a broker returned, or that a request handler is about to return.

    ``text`` replaces the code's general message where the caller knows the exact cause.
    """

    def __init__(self, code: ErrorCode, text: str | None = None) -> None:
        super().__init__(f"{code.name}: {text or code.message}")
        self.code = code
        self.text = text or code.message

    def __reduce__(self) -> tuple[type[BrokerError], tuple[ErrorCode, str]]:
        return BrokerError, (self.code, self.text)
