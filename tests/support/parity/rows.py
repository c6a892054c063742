"""Every row of the connector's tables: what klog promises beside Spark's own Kafka connector.

Ids are short and stable: tests name them (`@pytest.mark.parity("source option: assign")`), and
docs/parity.md is printed from them. A new promise is a new row here, with its test.
"""

from typing import NamedTuple


class ParityRow(NamedTuple):
    """One promise: ``section`` is its table on the page, ``text`` what a user may rely on."""

    id: str
    section: str
    text: str


def _rows(section: str, prefix: str, rows: dict[str, str]) -> tuple[ParityRow, ...]:
    return tuple(ParityRow(f"{prefix}: {name}", section, text) for name, text in rows.items())


_SOURCE_OPTIONS = _rows(
    "Source options",
    "source option",
    {
        "assign": 'partitions as JSON, {"t":[0,1]}',
        "subscribe": "a comma list of topics",
        "subscribePattern": "Java's regex, searched in topic names, without internal topics",
        "kafka.bootstrap.servers": "required; bootstrap.servers is accepted too",
        "startingTimestamp": "epoch ms; overrides startingOffsetsByTimestamp",
        "startingOffsetsByTimestamp": "epoch ms by partition; overrides startingOffsets",
        "startingOffsets": "earliest, latest (stream only), or JSON with -2 and -1",
        "startingOffsetsByTimestampStrategy": "error or latest, if no record is that new",
        "endingTimestamp": "epoch ms; overrides endingOffsetsByTimestamp; no match is latest",
        "endingOffsetsByTimestamp": "epoch ms by partition; overrides endingOffsets",
        "endingOffsets": "latest, or JSON with -1",
        "failOnDataLoss": "whether a query fails when records were deleted",
        "kafkaConsumer.pollTimeoutMs": "longest wait for records of a task",
        "fetchOffset.numRetries": "attempts to find topics and offsets",
        "fetchOffset.retryIntervalMs": "wait between these attempts",
        "maxOffsetsPerTrigger": "prorated by backlog, at least 1 for a partition with records",
        "limits in batch": "maxOffsetsPerTrigger, minOffsetsPerTrigger, maxTriggerDelay: ignored",
        "minOffsetsPerTrigger": "waits for this many offsets; the first batch does not wait",
        "maxTriggerDelay": "longest wait for minOffsetsPerTrigger",
        "minPartitions": "large ranges are split over more tasks",
        "maxRecordsPerPartition": "most offsets of a task; applied before minPartitions",
        "groupIdPrefix": "prefix of the group's name",
        "kafka.group.id": "the group's whole name",
        "includeHeaders": "a column headers",
        "kafka.*": "settings passed to the client",
        "kafka.* of others": "a producer's settings and unknown names: a warning",
        "without effect": "useDeprecatedOffsetFetching and spark.kafka confs are accepted",
    },
)

_ROW = _rows(
    "Rows",
    "row",
    {
        "schema": "key, value, topic, partition, offset, timestamp, timestampType, headers",
        "null keys and values": "stay null: a tombstone is not an empty value",
        "v0 record": "timestamp -1 ms and timestampType -1",
        "malformed timestamp": "an overflow of microseconds fails with the peer's error class",
        "user schema": "refused: the schema is fixed",
    },
)

_REFUSED = _rows(
    "Refused at load",
    "refused",
    {
        "no strategy": "none of assign, subscribe, subscribePattern",
        "several strategies": "two of assign, subscribe, subscribePattern",
        "empty list or pattern": "a strategy without a topic",
        "no bootstrap servers": "kafka.bootstrap.servers is missing",
        "non-positive minPartitions": "0 and below",
        "non-positive maxRecordsPerPartition": "0 and below",
        "non-positive limits": "maxOffsetsPerTrigger, minOffsetsPerTrigger",
        "min above max": "minOffsetsPerTrigger above maxOffsetsPerTrigger",
        "starting latest in batch": "latest, and -1 for a partition",
        "ending earliest": "earliest, and -2 for a partition",
        "ending options on a stream": "endingOffsets, endingOffsetsByTimestamp, endingTimestamp",
        "malformed offset JSON": "the error has an example",
        "offsets of other partitions": "partitions other than the assigned ones",
        "other keys in starting and ending": "a batch whose two maps name different partitions",
        "kafka.auto.offset.reset": "use startingOffsets",
        "kafka.key.deserializer": "keys are binary",
        "kafka.value.deserializer": "values are binary",
        "kafka.sasl.username without a login": "librdkafka's name; ignoring it is not safe",
        "kafka.enable.auto.commit": "progress is kept in the checkpoint",
        "kafka.interceptor.classes": "could change the rows",
        "misspelt option": "the error proposes a name; Spark's own options pass",
    },
)

_SECURITY = _rows(
    "Security",
    "security",
    {
        "jaas: PlainLoginModule": "user and password of kafka.sasl.jaas.config",
        "jaas: ScramLoginModule": "user and password for SCRAM",
        "jaas: OAuthBearerLoginModule": "options of kafka.sasl.jaas.config",
        "jaas: kafkashaded prefix": "Databricks' name of the class",
        "SSL": "security.protocol SSL",
        "SASL_PLAINTEXT": "security.protocol SASL_PLAINTEXT",
        "SASL_SSL": "security.protocol SASL_SSL",
        "PLAIN": "sasl.mechanism PLAIN",
        "SCRAM-SHA-256": "sasl.mechanism SCRAM-SHA-256",
        "SCRAM-SHA-512": "sasl.mechanism SCRAM-SHA-512",
        "OAUTHBEARER token callback": "module:callable that gives a token",
        "OAUTHBEARER client credentials": "a token from an endpoint",
        "PEM stores": "as files and as strings",
        "PKCS12 stores": "truststore and keystore",
        "JKS stores": "refused, with the keytool command that converts them",
        "host name verification": "on by default; ssl.endpoint.identification.algorithm",
        "Java class names": "a built-in, module:callable, or an error that names the alternative",
        "GSSAPI": "a clear refusal",
        "delegation tokens": "a clear refusal",
        "AWS_MSK_IAM": "through the token callback",
        "secrets stay secret": "in no plan, log, error or checkpoint",
    },
)

_BEHAVIOURS = _rows(
    "Source behaviours",
    "source behaviour",
    {
        "new partition during a query": "read from its earliest",
        "new partition without its first records": "fails under failOnDataLoss",
        "partition or topic gone": "fail, or warn and leave it out, by failOnDataLoss",
        "pattern goes on with the topics left": "if failOnDataLoss is false",
        "topic absent at start": "fails after the retries",
        "assign of an absent partition": "fails",
        "end before start on a stream": "a recreated topic: by failOnDataLoss",
        "end before start in batch": "fails, naming both offsets",
        "latest below the known one": "requested again, up to numRetries",
        "offset out of range in a read": "fails with the range, or continues at the earliest",
        "empty range": "no task",
        "read_committed": "ends at the last stable offset; without markers and aborted records",
        "gaps cost no waiting": "at start, middle, end, or for a whole batch",
        "no timestamp match": "fail, or latest, by strategy",
        "batch earliest and latest": "resolved when the query runs",
        "self-join": "each relation gets its own rows",
        "union": "each relation gets its own rows",
        "reuse of one DataFrame": "returns the rows again",
        "restart": "nothing lost, nothing twice",
        "data added while stopped": "nothing lost, nothing twice",
        "partitions added while stopped": "nothing lost, nothing twice",
        "a start that can move is durable": "latest, -1 and strategy latest, before batch 0 ends",
        "AvailableNow": "end fixed at start; 15 records at max 5 are 3 batches",
        "AvailableNow with added partitions": "continues",
        "AvailableNow with a lost partition": "fails",
        "Once": "one batch, ignores the limit",
        "idle source in a union": "keeps its offsets",
        "two sources in one query": "each keeps its offsets",
        "Long.Max limit": "no overflow",
        "minPartitions splits": "1 to N, N to N, skewed, fewer than partitions; no offset dropped",
        "new topic during a query": "read from its earliest if the pattern matches",
        "topic deleted during a query": "fail, or warn and continue with the others",
        "topic recreated during a query": "read from its earliest after the loss was noticed",
        "topic made again unseen": "noticed by its id while a query or batch runs",
        "topic made again between runs": "noticed if it is shorter: a checkpoint has no ids",
        "options that name a topic no more": "by failOnDataLoss; no topic is reported as deleted",
        "connection loss in a task": "tried again within pollTimeoutMs",
        "broker restart in a task": "tried again within pollTimeoutMs",
        "leader change in a task": "reads from the new leader",
        "no broker any more in a task": "fails after pollTimeoutMs",
        "a kafka query's checkpoint": "can be continued, and handed back",
        "a checkpoint of an older klog": "is read",
        "a checkpoint of a newer format": "is refused clearly",
    },
)

_SINK = _rows(
    "Sink",
    "sink",
    {
        "value column": "string or binary; required",
        "key column": "string or binary",
        "headers column": "written if present",
        "topic column": "a topic for each row",
        "partition column": "a partition for each row; overrides every partitioner",
        "extra columns": "ignored",
        "column timestamp": "ignored, whatever its type",
        "option topic": "trimmed; overrides the column",
        "option kafka.*": "settings passed to the client",
        "option kafka.* of others": "a consumer's settings and unknown names: a warning",
        "default partitioner": "murmur2 of the key",
        "keyless rows": "spread, sticky within a batch",
        "kafka.partitioner.class": "overrides the default",
        "no topic anywhere": "refused",
        "null topic in a row": "fails",
        "wrong type: topic": "refused",
        "wrong type: key": "refused",
        "wrong type: value": "refused",
        "wrong type: headers": "refused",
        "wrong type: partition": "refused",
        "missing value": "refused",
        "serializer options": "refused",
        "save modes": "append only; overwrite is refused",
        "absent topic": "fails when auto creation is off",
        "negative or unknown partition": "fails",
        "null values": "tombstones",
        "batch": "df.write",
        "stream append": "outputMode append",
        "stream complete": "outputMode complete",
        "numOutputRows": "in progress reports",
        "small buffers": "block, never fail",
        "connection loss in a task": "sent again within delivery.timeout.ms, taken once",
        "broker restart in a task": "sent again within delivery.timeout.ms, taken once",
        "leader change in a task": "sent to the new leader",
        "no broker any more in a task": "fails after delivery.timeout.ms",
        "batch_writer": "pyspark_klog.batch_writer(**options) for foreachBatch",
    },
)

_PYTHON = _rows(
    "Limits of Python sources",
    "python source",
    {
        "update mode": "refused by Spark: use foreachBatch(batch_writer(...))",
        "save without mode append": "refused by Spark",
        "continuous trigger": "refused by Spark",
        "real-time trigger": "refused by Spark",
        "async progress tracking": "refused by Spark",
        "custom metrics": "no metrics of the source or sink",
        "column pruning": "all columns are read; option columns narrows them",
        "preferred locations": "none",
        "composite read limits": "klog combines minimum and maximum itself",
        "two columns of one name": "refused by Spark 4.3; batch_writer takes the first",
        "tables of SQL": "give options behind WITH where the table is used",
        "names in plans and progress": "topics in offsets; options in a stream's extended plan",
    },
)

_BEYOND = _rows(
    "Beyond the peer",
    "beyond",
    {
        "1 no jar": "pip install, format('klog')",
        "1 Spark Connect": "a server with klog, a client without",
        "3 commitGroupId": "klog commits to the group what Spark has committed",
        "3 position": "never ahead of Spark, complete after AvailableNow and when idle",
        "3 never fails a batch": "asynchronous, warns once",
        "3 active members": "a group with members is refused with one warning",
        "3 startingOffsets committed": "new queries begin at the group's offsets",
        "3 committedOffsetsMissing": "error, earliest or latest",
        "3 out of range": "decided by failOnDataLoss",
        "4 keys": "a batch reads only the partitions and records of given keys",
        "4 columns": "narrows the schema",
        "5 Arrow": "no object per record",
        "6 lag in records": "sources[].latestOffset in the peer's JSON",
        "6 lag in time": "a listener helper; min, max and avgOffsetsBehindLatest",
        "6 maxBytesPerTrigger": "a limit by bytes",
        "6 limits by topic": "maxOffsetsPerTriggerByTopic",
        "7 timestamp column": "the sink writes create times from a column (timestampColumn)",
        "8 dead letters": "the sink writes refused rows to a topic, with the reason",
        "9 embedded broker": "a broker for tests, and pytest fixtures",
        "10 rack awareness": "reads from the preferred read replica",
        "11 segment files": "a batch reads them without a broker",
        "12 catalogue": "topics, partitions, groups, offsets, sinks as tables",
        "13 offsets per topic": '{"t":"earliest"}',
    },
)

_OWN = _rows(
    "klog's own options",
    "own option",
    {
        "commitGroupId": "consumer group of the query, see 3 above",
        "committedOffsetsMissing": "start without a committed offset, see 3 above",
        "keys": "records of these keys, see 4 above",
        "columns": "only these columns, see 4 above",
        "maxBytesPerTrigger": "limit by bytes, see 6 above",
        "maxOffsetsPerTriggerByTopic": "limit by topic, see 6 above",
        "lagDetails": "time lag in the progress",
        "idleWaitMs": "wait of an idle stream before it polls again; 0 for none",
        "allowSlow": "run without numba",
        "deadLetterTopic": "topic of refused rows, see 8 above",
        "deadLetterMax": "most dead letters of a batch, see 8 above",
        "timestampColumn": "column of create times, see 7 above",
        "path": "segment files, see 11 above; refused for sinks and streams",
        "stopped": "no broker runs on the files, see 11 above",
        "table": "facts of the cluster, see 12 above",
    },
)

_RELEASES = _rows(
    "Spark releases",
    "release",
    {
        "4.0 and 4.1: batch, sinks, streams": "run, except limits of micro-batches",
        "4.0 and 4.1: limits": "one error when the query starts",
        "4.0: stream sink": "rows instead of Arrow",
        "4.0 and 4.1: resolved once": "latestOffset before initialOffset on a new query",
        "4.2 and later": "all features",
        "detected by feature": "never by version string",
    },
)

_CLUSTERS = _rows(
    "On clusters",
    "cluster",
    {
        "register": "pyspark_klog.register(spark), for late installs and threads",
        "pickles by reference": "every executor imports the package",
        "executors in other processes": "local-cluster[2,1,1024]",
        "without numba": "refused, unless allowSlow",
        "PYSPARK_PYTHON": "set by klog's scripts and fixtures",
    },
)

ROWS: tuple[ParityRow, ...] = (
    *_SOURCE_OPTIONS,
    *_ROW,
    *_REFUSED,
    *_SECURITY,
    *_BEHAVIOURS,
    *_SINK,
    *_PYTHON,
    *_BEYOND,
    *_OWN,
    *_RELEASES,
    *_CLUSTERS,
)

IDS = frozenset(row.id for row in ROWS)
