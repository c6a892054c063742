"""The APIs of Kafka that klog does not serve, with the reason; printed in docs/apis.md."""

from pyspark_klog.protocol.keys import ApiKey

_TOKENS = "Kafka's own brokers refuse it unless delegation tokens are set up"
_SASL = "listeners have no SASL yet"
_NEW_GROUPS = (
    "groups of the new protocol (KIP-848) are not coordinated yet; consumers use the classic"
)
_TELEMETRY = "client metrics (KIP-714) are not collected; clients work without"
_NO_KRAFT = "of KRaft; a broker's registration in ZooKeeper ends with its session"
_LATER = "not written yet"

REASONS: dict[ApiKey, str] = {
    ApiKey.SASL_HANDSHAKE: _SASL,
    ApiKey.SASL_AUTHENTICATE: _SASL,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _SASL,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _LATER,
    ApiKey.CREATE_DELEGATION_TOKEN: _TOKENS,
    ApiKey.RENEW_DELEGATION_TOKEN: _TOKENS,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _TOKENS,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _TOKENS,
    ApiKey.UNREGISTER_BROKER: _NO_KRAFT,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _NEW_GROUPS,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _NEW_GROUPS,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _TELEMETRY,
    ApiKey.PUSH_TELEMETRY: _TELEMETRY,
}

UNKNOWN_APIS: dict[str, str] = {
    "Vote, BeginQuorumEpoch, EndQuorumEpoch, DescribeQuorum, Envelope, "
    "FetchSnapshot, BrokerRegistration, BrokerHeartbeat, "
    "ControllerRegistration, AssignReplicasToDirs, AddRaftVoter, RemoveRaftVoter, "
    "UpdateRaftVoter, UnregisterController": "of KRaft; klog has no Raft",
    "ShareGroupHeartbeat, ShareGroupDescribe, ShareFetch, ShareAcknowledge, "
    "InitializeShareGroupState, ReadShareGroupState, WriteShareGroupState, "
    "DeleteShareGroupState, ReadShareGroupStateSummary, DescribeShareGroupOffsets, "
    "AlterShareGroupOffsets, DeleteShareGroupOffsets": "share groups (KIP-932)",
    "StreamsGroupHeartbeat, StreamsGroupDescribe, StreamsGroupTopologyDescriptionUpdate": (
        "streams groups (KIP-1071)"
    ),
}
"""The APIs whose requests and responses klog does not define, with the reason why klog does not
serve them."""
