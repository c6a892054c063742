"""Allowed differences between klog's responses and both Kafkas': their only declaration.

`tests/peers/test_data_api_oracle.py` reads the rows. `python -m tests.support.oracle.docs` prints
them as the table in docs/differences-from-kafka.md. The rows of Produce are in
`oracle/produce_rows.py`.
"""

from tests.support.oracle.produce_rows import PRODUCE_ROWS
from tests.support.oracle.row import (
    ORDER,
    SAME,
    SERVER_ERROR,
    Row,
    all_of,
    both_refuse,
    has_codes,
    has_topic_without_partitions,
    is_before,
    is_changed,
    is_named_twice,
    is_since,
    is_under_another_id,
    of_request,
    partitions_of,
)

_EVERYWHERE = [
    Row(
        "",
        "",
        "a topic without partitions",
        "the topic is not in the response (AddPartitionsToTxn: it is)",
        SAME,
        "the topic is there with no partitions (AddPartitionsToTxn: it is not)",
        "nothing was asked for; clients match rows by their partitions",
        lambda case, kafka, klog: (
            isinstance(kafka, list)
            and isinstance(klog, list)
            and has_topic_without_partitions(case.request)
        ),
    ),
    Row(
        "",
        "",
        "a topic, a partition, a group or a resource twice",
        "a row for each time, or the rows of both topics under one (by API)",
        SAME,
        "one row (DescribeGroups, DescribeConfigs, AddPartitionsToTxn), else one for each time",
        "an answer can be much longer than the name; no client names anything twice",
        lambda case, kafka, klog: (
            isinstance(kafka, list) and isinstance(klog, list) and is_named_twice(case, kafka, klog)
        ),
    ),
]

_READING = [
    *(
        Row(
            api,
            "",
            "isolation_level other than 0 and 1",
            SERVER_ERROR,
            SAME,
            "as 0, READ_UNCOMMITTED",
            "Kafka's error is one of parsing that it does not catch",
            of_request(lambda request: request.isolation_level not in (0, 1)),
        )
        for api in ("Fetch", "ListOffsets")
    ),
    Row(
        "Fetch",
        "",
        "max_bytes or partition_max_bytes below 0",
        SERVER_ERROR,
        SAME,
        "as 0: at least one batch",
        "Kafka's error is an exception that it does not catch",
        of_request(
            lambda request: (
                request.max_bytes < 0
                or any(each.partition_max_bytes < 0 for each in partitions_of(request))
            )
        ),
    ),
    Row(
        "Fetch",
        "",
        "two partitions of a topic_id of zeros, version 13 and later",
        SERVER_ERROR,
        SAME,
        "UNKNOWN_TOPIC_ID for the topic",
        "Kafka's error is an exception that it does not catch",
        all_of(
            is_since(13),
            of_request(
                lambda request: (
                    sum(
                        len(topic.partitions) for topic in request.topics if topic.topic_id.int == 0
                    )
                    > 1
                )
            ),
        ),
    ),
    Row(
        "Fetch",
        "",
        "session_id of no session, with epoch 0 or -1",
        SERVER_ERROR + " for ids that Kafka's shards of the cache do not cover",
        SAME,
        "the session is ended, if there is one",
        "ids that no broker gave: Kafka computes a shard from the id, which fails",
        of_request(lambda request: request.session_id != 0),
    ),
    Row(
        "Fetch",
        "session_id",
        "a session without partitions",
        "a session",
        SAME,
        "0, no session",
        "an empty session would only be kept in memory",
        of_request(lambda request: not partitions_of(request)),
    ),
    Row(
        "Fetch",
        "responses.partitions.current_leader",
        "replica_id of a broker that does not follow the partition",
        "the leader",
        SAME,
        "none",
        "followers get leaders from the controller",
        of_request(lambda request: max(request.replica_id, request.replica_state.replica_id) >= 0),
    ),
    Row(
        "Fetch",
        "responses.partitions.records",
        "versions 0 to 3, which convert records down",
        "fewer batches in one response, or null where there are none",
        "does not serve them",
        "as many as fit, or an empty set",
        "Kafka converts while it sends, and cuts off what is larger than the records were before",
        is_before(4),
    ),
    Row(
        "ListOffsets",
        "topics.partitions",
        "max_num_offsets of 0 and below (version 0)",
        "no offsets; " + SERVER_ERROR + " below 0",
        "does not serve it",
        "INVALID_REQUEST",
        "the client can get nothing by it",
        all_of(
            is_before(1),
            of_request(
                lambda request: any(each.max_num_offsets <= 0 for each in partitions_of(request))
            ),
        ),
    ),
    Row(
        "ListOffsets",
        "topics.partitions.error_code",
        "a timestamp that needs a later version, and an unknown topic or a wrong epoch",
        "UNSUPPORTED_VERSION",
        SAME,
        "the code of the topic or the epoch",
        ORDER,
        has_codes({35}, {3, 74, 75}),
    ),
    Row(
        "ListOffsets",
        "topics.partitions",
        "the largest timestamp (-3), where DeleteRecords has moved the log start",
        "its record, which may lie before the log start",
        SAME,
        "the first record with it from the log start on",
        "Kafka's offset cannot be fetched",
        of_request(
            lambda request: (
                any(topic.name == "cut" for topic in request.topics)
                and any(each.timestamp == -3 for each in partitions_of(request))
            )
        ),
    ),
    Row(
        "OffsetForLeaderEpoch",
        "topics.partitions",
        "leader_epoch below -1",
        "the epoch of the request and the log start",
        SAME,
        "-1 and -1: no epoch",
        "no log has such an epoch",
        of_request(lambda request: any(each.leader_epoch < -1 for each in partitions_of(request))),
    ),
    Row(
        "Metadata",
        "",
        "a topic with neither name nor id",
        SERVER_ERROR + " for the whole request",
        SAME,
        "INVALID_REQUEST for the topic",
        "Kafka's error is an exception that it does not catch",
        of_request(
            lambda request: any(
                each.name is None and each.topic_id.int == 0 for each in request.topics or ()
            )
        ),
    ),
]

_GROUPS = [
    *(
        Row(
            api,
            "",
            "version 0",
            "UNSUPPORTED_VERSION (KRaft); offsets in ZooKeeper (with ZooKeeper)",
            "does not serve it",
            "offsets in `__consumer_offsets`; in a cluster, in ZooKeeper",
            "a standalone klog has no ZooKeeper; old clients keep working",
            is_before(1),
        )
        for api in (
            "OffsetCommit",
            "OffsetCommit > OffsetFetch",
            "OffsetCommit > DeleteGroups",
            "OffsetFetch",
        )
    ),
]

_TRANSACTIONS = [
    Row(
        "AddPartitionsToTxn",
        "",
        "no transactions (version 4 and later)",
        "no response at all",
        SAME,
        "an empty response",
        "the client would wait until its time-out",
        all_of(
            lambda case, kafka, klog: isinstance(kafka, str),
            of_request(lambda request: request.transactions == []),
        ),
    ),
    *(
        Row(
            api,
            field,
            "EndTxn 5 for a transaction that requests of version 4 and earlier began",
            "does not serve version 5",
            "the epoch rises",
            "the epoch stays",
            "the transaction.version that a transaction was begun with holds until its end",
            lambda case, kafka, klog: case.version >= 5 and (kafka, klog) == (1, 0),
        )
        for api, field in (
            ("EndTxn", "producer_epoch"),
            ("EndTxn > DescribeTransactions", "transaction_states.producer_epoch"),
        )
    ),
    *(
        Row(
            api,
            "",
            "another transactional_id, in a transaction that has the partition of the offsets",
            "accepted, as part of the transaction of producer_id (4.4.0, too)",
            SAME,
            "refused by the coordinator of transactional_id: INVALID_PRODUCER_ID_MAPPING",
            "the producer id is of another producer; Kafka refuses only the first offsets of a"
            " transaction",
            is_under_another_id,
        )
        for api in ("TxnOffsetCommit", "TxnOffsetCommit > OffsetFetch")
    ),
    Row(
        "InitProducerId",
        "",
        "a wrong producer_epoch, while a transaction is open",
        "the transaction is aborted, and a second request with the epoch that this made succeeds",
        SAME,
        "PRODUCER_FENCED",
        "a producer that was fenced must not abort its successor's transaction",
        is_changed("producer_epoch"),
    ),
]

_ADMIN = [
    Row(
        "CreatePartitions",
        "results.error_code",
        "an internal topic",
        "INVALID_PARTITIONS, or the topic grows",
        SAME,
        "INVALID_REQUEST",
        "keys of groups and transactions would move to other partitions",
        has_codes({37}, {42}),
    ),
    Row(
        "CreateTopics",
        "topics.error_code",
        "several faults at once",
        "INVALID_CONFIG, if a setting is wrong",
        SAME,
        "the fault of replicas or assignments",
        ORDER,
        all_of(both_refuse, lambda case, kafka, klog: len(case.changes) > 1),
    ),
    Row(
        "CreateTopics",
        "topics.topic_id",
        "validate_only",
        "an id",
        SAME,
        "zeros",
        "there is no topic that has the id",
        of_request(lambda request: request.validate_only),
    ),
    Row(
        "DescribeConfigs",
        "results.configs.is_default",
        "version 0",
        "always false",
        "does not serve it",
        "true for a default",
        "Kafka 3.9.1 lost the field, and old clients read it",
        lambda case, kafka, klog: case.version == 0,
    ),
    Row(
        "DescribeConfigs",
        "results",
        "resource_type 8 (loggers)",
        "all loggers of its libraries",
        SAME,
        "one logger, `root`",
        "klog has one log level",
        of_request(lambda request: any(each.resource_type == 8 for each in request.resources)),
    ),
    Row(
        "DescribeConfigs",
        "results",
        "resource_type 16 and 32 (client metrics, groups)",
        "16: no settings; 32: INVALID_REQUEST",
        "defaults",
        "no settings",
        "klog pushes no client metrics and has no groups of KIP-848",
        of_request(
            lambda request: any(each.resource_type in (16, 32) for each in request.resources)
        ),
    ),
]

ROWS: tuple[Row, ...] = (
    *_READING,
    *_GROUPS,
    *_TRANSACTIONS,
    *_ADMIN,
    *PRODUCE_ROWS,
    *_EVERYWHERE,
)
