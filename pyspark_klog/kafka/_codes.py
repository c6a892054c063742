"""The error codes of confluent_kafka: those of brokers, and below -1 those of the client."""

from typing import ClassVar

from pyspark_klog.errors import ErrorCode


class ErrorCodes:
    """Error codes as confluent_kafka names them."""

    __slots__ = ()

    _BAD_MSG = -199
    _BAD_COMPRESSION = -198
    _DESTROY = -197
    _FAIL = -196
    _TRANSPORT = -195
    _CRIT_SYS_RESOURCE = -194
    _RESOLVE = -193
    _MSG_TIMED_OUT = -192
    _PARTITION_EOF = -191
    _UNKNOWN_PARTITION = -190
    _FS = -189
    _UNKNOWN_TOPIC = -188
    _ALL_BROKERS_DOWN = -187
    _INVALID_ARG = -186
    _TIMED_OUT = -185
    _QUEUE_FULL = -184
    _ISR_INSUFF = -183
    _NODE_UPDATE = -182
    _SSL = -181
    _WAIT_COORD = -180
    _UNKNOWN_GROUP = -179
    _IN_PROGRESS = -178
    _PREV_IN_PROGRESS = -177
    _EXISTING_SUBSCRIPTION = -176
    _ASSIGN_PARTITIONS = -175
    _REVOKE_PARTITIONS = -174
    _CONFLICT = -173
    _STATE = -172
    _UNKNOWN_PROTOCOL = -171
    _NOT_IMPLEMENTED = -170
    _AUTHENTICATION = -169
    _NO_OFFSET = -168
    _OUTDATED = -167
    _TIMED_OUT_QUEUE = -166
    _UNSUPPORTED_FEATURE = -165
    _WAIT_CACHE = -164
    _INTR = -163
    _KEY_SERIALIZATION = -162
    _VALUE_SERIALIZATION = -161
    _KEY_DESERIALIZATION = -160
    _VALUE_DESERIALIZATION = -159
    _PARTIAL = -158
    _READ_ONLY = -157
    _NOENT = -156
    _UNDERFLOW = -155
    _INVALID_TYPE = -154
    _RETRY = -153
    _PURGE_QUEUE = -152
    _PURGE_INFLIGHT = -151
    _FATAL = -150
    _INCONSISTENT = -149
    _GAPLESS_GUARANTEE = -148
    _MAX_POLL_EXCEEDED = -147
    _UNKNOWN_BROKER = -146
    _NOT_CONFIGURED = -145
    _FENCED = -144
    _APPLICATION = -143
    _ASSIGNMENT_LOST = -142
    _NOOP = -141
    _AUTO_OFFSET_RESET = -140
    _LOG_TRUNCATION = -139
    _INVALID_DIFFERENT_RECORD = -138
    _DESTROY_BROKER = -137
    UNKNOWN = -1
    NO_ERROR = 0
    OFFSET_OUT_OF_RANGE = 1
    INVALID_MSG = 2
    UNKNOWN_TOPIC_OR_PART = 3
    INVALID_MSG_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_FOR_PARTITION = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MSG_SIZE_TOO_LARGE = 10
    STALE_CTRL_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133

    _texts: ClassVar[dict[int, str]] = {
        _BAD_MSG: "a response or a batch is damaged",
        _BAD_COMPRESSION: "compressed data cannot be decompressed",
        _DESTROY: "the client is being closed",
        _FAIL: "the communication with the broker failed",
        _TRANSPORT: "the connection to the broker was lost, or could not be made",
        _CRIT_SYS_RESOURCE: "the system has too few resources, such as threads or memory",
        _RESOLVE: "the broker's host name has no address",
        _MSG_TIMED_OUT: "the record was not acknowledged in time",
        _PARTITION_EOF: "the consumer has read the partition to its end",
        _UNKNOWN_PARTITION: "the topic has no such partition",
        _FS: "a file could not be read or written",
        _UNKNOWN_TOPIC: "the cluster has no such topic",
        _ALL_BROKERS_DOWN: "no broker can be reached",
        _INVALID_ARG: "an argument or a setting is not valid",
        _TIMED_OUT: "the time limit is over",
        _QUEUE_FULL: "the queue is full",
        _ISR_INSUFF: "the partition has too few in-sync replicas",
        _NODE_UPDATE: "the broker's address has changed",
        _SSL: "TLS failed",
        _WAIT_COORD: "the group's coordinator is not known yet",
        _UNKNOWN_GROUP: "the group is not known",
        _IN_PROGRESS: "the operation is still in progress",
        _PREV_IN_PROGRESS: "an earlier operation is still in progress",
        _EXISTING_SUBSCRIPTION: "the topic is subscribed already",
        _ASSIGN_PARTITIONS: "partitions are to be assigned",
        _REVOKE_PARTITIONS: "partitions are to be revoked",
        _CONFLICT: "the call contradicts an earlier call or setting",
        _STATE: "the client's state does not allow the call",
        _UNKNOWN_PROTOCOL: "the protocol is not known",
        _NOT_IMPLEMENTED: "the function does not exist",
        _AUTHENTICATION: "the broker refused the login",
        _NO_OFFSET: "there is no stored offset",
        _OUTDATED: "something newer exists",
        _TIMED_OUT_QUEUE: "the time limit was over before the request was sent",
        _UNSUPPORTED_FEATURE: "the broker does not have the feature",
        _WAIT_CACHE: "the metadata are not known yet",
        _INTR: "the operation was interrupted",
        _KEY_SERIALIZATION: "the key could not be serialized",
        _VALUE_SERIALIZATION: "the value could not be serialized",
        _KEY_DESERIALIZATION: "the key could not be deserialized",
        _VALUE_DESERIALIZATION: "the value could not be deserialized",
        _PARTIAL: "the response is incomplete",
        _READ_ONLY: "the object cannot be changed",
        _NOENT: "there is no such entry",
        _UNDERFLOW: "the data end too early",
        _INVALID_TYPE: "the type is not valid",
        _RETRY: "the operation has to be tried again",
        _PURGE_QUEUE: "the record was purged before it was sent",
        _PURGE_INFLIGHT: "the record was purged after it was sent: it may be written",
        _FATAL: "the client has failed for good",
        _INCONSISTENT: "the state is inconsistent",
        _GAPLESS_GUARANTEE: "the next record would leave a gap",
        _MAX_POLL_EXCEEDED: "the program did not poll within max.poll.interval.ms",
        _UNKNOWN_BROKER: "the broker is not known",
        _NOT_CONFIGURED: "the function is not configured",
        _FENCED: "a newer client with the same id has fenced this one",
        _APPLICATION: "the program reported an error",
        _ASSIGNMENT_LOST: "the group has given the partitions to others",
        _NOOP: "there was nothing to do",
        _AUTO_OFFSET_RESET: "the partition has no valid offset, and auto.offset.reset is error",
        _LOG_TRUNCATION: "the partition's log was truncated below the consumer's position",
        _INVALID_DIFFERENT_RECORD: "another record of the same batch is not valid",
        _DESTROY_BROKER: "the broker was removed",
    }


_OWN_NAMES = {code: name for name, code in vars(ErrorCodes).items() if isinstance(code, int)}


def code_name(code: int) -> str:
    """Return the name of an error code: confluent_kafka's, or for a code that confluent_kafka does
    not know Kafka's; ``ERR_n?`` if Kafka has no such code either."""
    if code in _OWN_NAMES:
        return _OWN_NAMES[code]
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"ERR_{code}?"


def code_text(code: int) -> str:
    """Return a sentence about an error code; it begins with ``Local:`` if the client detected the
    error, and with ``Broker:`` if a broker answered it."""
    local = ErrorCodes._texts.get(code)
    if local is not None:
        return f"Local: {local}"
    try:
        return f"Broker: {ErrorCode(code).message}" if code else "Success"
    except ValueError:
        return f"Err-{code}?"
