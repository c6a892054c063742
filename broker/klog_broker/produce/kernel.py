"""The compiled kernel that makes the produce plan of an event-loop turn: it checks the
Produce requests that the turn has received from all connections together, and gives offsets to
their batches.

The kernel reads the received bytes connection by connection and frame by frame, as long as each
request is of the usual kind: Produce 3 to 13, uncompressed batches in which only offset and epoch
have to be set, partitions that the caller knows, the next sequence of each producer, transactions
that have begun or may begin. At any other request the kernel stops reading this connection's bytes,
and the ordinary Produce handler serves the request. The kernel decides the same as the handler, in
the same order, but changes only its own tables: the caller (planner.py) writes the batches to the
logs' files and then makes them part of the logs.

The kernel asks the caller for facts by returning: NEED_SLOT and NEED_PRODUCER for the facts of a
partition or of a producer in it, NEED_TRANSACTION for whether a producer may begin a transaction.
The caller fills them in and calls again, and the kernel continues.

Nearly all state is in one table of int64 words with sections (passing one array costs less than
passing many), such as a head, the connections, the slots, the producers, the batches in order,
index entries, and two hash tables; the topics' names are in another array. A *slot* has a
partition's facts; a partition has a slot for each principal that writes to it and for each spelling
of its topic (by name, by id). Positions of requests and batches are positions in the arena, the
turn's receive buffer.
"""

from typing import Any

from klog_broker.log.segment.planned_append import ACKS_ALL_LATER, ACKS_ALL_NEVER
from pyspark_klog.records.kernels.crc import crc32c
from pyspark_klog.records.kernels.jit import COMPILED, Array, inline, kernel, numba
from pyspark_klog.records.kernels.memory import (
    byte_at,
    copy_bytes,
    read_i16,
    read_i32,
    read_i64,
    read_u32,
    write_i32,
    write_i64,
)
from pyspark_klog.records.kernels.record_validation import (
    RESULT_FIELDS,
    RESULT_MAX_TIMESTAMP_MS,
    validate_records,
)
from pyspark_klog.records.kernels.records import is_utf8
from pyspark_klog.records.layout import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    BATCH_HEADER_BYTES,
    CRC_AT,
    CRC_START_AT,
    INT32_MAX,
    INT64_MAX,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    MAGIC_V2,
    MAX_TIMESTAMP_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
    SIZE_AT,
    TRANSACTIONAL_BIT,
)

IS_COMPILED = COMPILED
"""False without numba: the produce kernel is then plain Python code, and slower than the ordinary
Produce handler."""

# --- results of plan_produce, the kernel's function that makes a produce plan --------------------
DONE = 0  # the appends for all requests are planned, or left to the ordinary Produce handler
# A section of the kernel's table, or `responses` (the array of encoded responses), is full: this
# list of appends (produce plan) ends with the last request that fitted, and the caller has the
# other requests planned in another one.
FULL = 1
# The caller has to write a partition's facts (such as its next offset and limits) into the
# partition's slot (a row of the kernel's table), whose number the table has in HEAD_NEEDED, and
# call the kernel again.
NEED_SLOT = 2
# The caller has to write the log's state of a producer (such as its epoch and last sequence) into
# the producer's row of the kernel's table, whose number the table has in HEAD_NEEDED, and call the
# kernel again.
NEED_PRODUCER = 3
# The caller has to write the producer's state as for NEED_PRODUCER, and first decide whether the
# producer's batch begins a transaction.
NEED_TRANSACTION = 4

# Internal results, which ``plan_produce`` never returns. _TAKEN: the request or batch passed all
# checks. _STOP: the ordinary Produce handler has to serve the request.
_TAKEN = 5
_STOP = 6

# --- the head of the kernel's table: positions of its 64-bit words -------------------------------
# The number of this produce plan (the kernel's list of appends for many Produce requests). A row of
# a partition (slot) or producer is out of date if its SLOT_ROUND or PRODUCER_ROUND has another
# number: then the row has the facts of an earlier plan, or none yet.
HEAD_ROUND = 0
HEAD_CONNECTIONS = 1
HEAD_CONNECTION = 2  # the number of the connection whose frames are being read
# how many slots (rows with a partition's facts) are in use; they stay in use for the Produce
# requests of later event-loop turns
HEAD_SLOTS = 3
HEAD_PRODUCERS = 4
HEAD_ROWS = 5
HEAD_INDEX_ROWS = 6
HEAD_TOUCHED = 7  # how many partitions get batches in this produce plan (list of appends)
HEAD_RESPONSE_END = 8
HEAD_REQUESTS = 9
HEAD_NEEDED = 10
HEAD_MAX_REQUEST_BYTES = 11
# The number of the current request, which is higher for each request, and never reset. A partition
# with this number as SLOT_REQUEST already has a batch of the request.
HEAD_REQUEST_STAMP = 12
# The transactional id of the last request that has one (its position in the received bytes, and its
# length), and that request's version.
HEAD_TRANSACTIONAL_ID_AT = 13
HEAD_TRANSACTIONAL_ID_BYTES = 14
HEAD_VERSION = 15
HEAD_HELD = 16  # how many batches to append have a response that waits for the followers (acks=all)
# 1 if the broker has access control: then the compiled kernel leaves requests with a transactional
# id to the ordinary Produce handler.
HEAD_LEAVES_TRANSACTIONS = 17
# The word HEAD_VERSIONS + v counts the requests of Produce version v that the compiled kernel
# serves in this produce plan (list of appends).
HEAD_VERSIONS = 18
HEAD_WORDS = 32

# --- a connection's row in the kernel's table: positions of its 64-bit words ---------------------
# Where in the arena (the receive buffer) the connection's first request begins that the kernel has
# not served yet.
CONNECTION_AT = 0
CONNECTION_END = 1
CONNECTION_RESPONSES_AT = 2
CONNECTION_RESPONSES_END = 3
CONNECTION_REQUESTS = 4
# The number of the connection's principal (security/principal_numbers.py); 0 if the broker has no
# access control.
CONNECTION_PRINCIPAL = 5
CONNECTION_WORDS = 6
MAX_CONNECTIONS = 1024

# --- a slot (a partition's row in the kernel's table): positions of its 64-bit words -------------
SLOT_ROUND = 0
SLOT_STATE = 1
SLOT_NEXT_OFFSET = 2
SLOT_LEADER_EPOCH = 3
SLOT_LOG_START_OFFSET = 4
SLOT_MAX_MESSAGE_BYTES = 5
SLOT_EARLIEST_MS = 6
SLOT_LATEST_MS = 7
SLOT_KEY_REQUIRED = 8
SLOT_SIZE_BYTES = 9
SLOT_SEGMENT_BYTES = 10
SLOT_LAST_OFFSET_LIMIT = 11
SLOT_TIMESTAMP_LIMIT_MS = 12
SLOT_SINCE_INDEX_ENTRY = 13
SLOT_INDEX_INTERVAL = 14
SLOT_INDEX_ROOM = 15
SLOT_MAX_TIMESTAMP_MS = 16
SLOT_MAX_TIMESTAMP_OFFSET = 17
# how the compiled kernel treats requests with acks=-1: ACKS_ALL_NEVER (leaves them to the ordinary
# Produce handler), ACKS_ALL_AT_ONCE (answers them after the append) or ACKS_ALL_LATER (after the
# replication)
SLOT_ACKS_ALL = 18
# For each produce plan (list of appends), the kernel's caller (PlanTables.fill_slot) writes the
# words of a partition's slot from SLOT_ROUND to SLOT_ACKS_ALL, and sets the next four words to 0.
# The kernel then updates some of these words for each batch, and writes the words from SLOT_BATCHES
# to SLOT_HASH.
SLOT_BATCHES = 19  # how many batches this produce plan (list of appends) has for the partition
SLOT_BYTES = 20
SLOT_INDEX_ROWS = 21
# The position of the partition's first batch in `batches`, the array to which the compiled kernel
# copies all batches that its caller writes to the logs. While _gather copies them: the position for
# the partition's next batch.
SLOT_OUT = 22
SLOT_REQUEST = 23  # number (HEAD_REQUEST_STAMP) of the last request with a batch for the partition
SLOT_BY_ID = 24
SLOT_PARTITION = 25
SLOT_NAME_BYTES = 26
SLOT_HASH = 27
# The kernel's caller writes the words of a slot (a partition's row) from SLOT_TARGET to
# SLOT_UNTIMED_LIMIT_MS; the kernel writes SLOT_FIRST_TIMESTAMP_MS and SLOT_PRINCIPAL. SLOT_TARGET
# is the position of the slot that the kernel uses for the partition in this produce plan (list of
# appends): a partition has several slots if requests name its topic by name and by id, or if
# several principals write.
SLOT_TARGET = 28
SLOT_FIRST_OFFSET = 29  # the partition's first offset in this produce plan (list of appends)
SLOT_LONGEST_MS = 30
SLOT_UNTIMED_LIMIT_MS = 31
# The maximum timestamp of the partition's first batch in this produce plan (list of appends).
SLOT_FIRST_TIMESTAMP_MS = 32
# The number of the principal (security/principal_numbers.py) whose requests use this slot (a
# partition's row). The number is 0 if the broker has no access control.
SLOT_PRINCIPAL = 33
SLOT_WORDS = 34
MAX_SLOTS = 512
# How many bytes each slot (a partition's row) has for the topic's name or id in `names`, an array
# beside the kernel's table.
NAME_BYTES = 256

SLOT_READY = 1
# The compiled kernel leaves the partition's requests to the ordinary Produce handler.
SLOT_UNAVAILABLE = 2

# --- a producer's row for one partition, in the kernel's table: positions of its words -----------
PRODUCER_ROUND = 0
PRODUCER_SLOT = 1
PRODUCER_ID = 2
PRODUCER_STATE = 3
PRODUCER_EPOCH = 4
PRODUCER_LAST_SEQUENCE = 5
# How many batches of the producer this produce plan (list of appends) has for the partition.
PRODUCER_BATCHES = 6
PRODUCER_BUCKET = 7  # the bucket, in the hash table of producers, that points to this row
PRODUCER_WINDOW = 8
WINDOW_BATCHES = 5
# The words of each batch in the producer's window (its last WINDOW_BATCHES batches in this produce
# plan, the kernel's list of appends): first and last sequence, first and last offset, maximum
# timestamp.
WINDOW_WORDS = 5
# Whether the producer has an open transaction in the partition, or begins one in this produce plan
# (list of appends).
PRODUCER_IN_TRANSACTION = PRODUCER_WINDOW + WINDOW_BATCHES * WINDOW_WORDS
# Whether the producer's first batch in this produce plan (list of appends) begins a transaction in
# the partition.
PRODUCER_BEGINS = PRODUCER_IN_TRANSACTION + 1
# The offset of the producer's first batch in this produce plan (list of appends).
PRODUCER_FIRST_OFFSET = PRODUCER_IN_TRANSACTION + 2
PRODUCER_WORDS = PRODUCER_IN_TRANSACTION + 7
MAX_PRODUCERS = 1024

# The log has no state of the producer: its first batch may have any epoch and sequence.
PRODUCER_NEW = 1
# The producer's epoch and last sequence are known: from the log, from an earlier batch of this
# produce plan (list of appends), or from the plan's first batch, which may begin a transaction.
PRODUCER_KNOWN = 2

# --- the row of a batch to append, in the kernel's table: positions of its 64-bit words ----------
ROW_SLOT = 0
ROW_AT = 1
ROW_BYTES = 2
ROW_LAST_DELTA = 3
ROW_MAX_TIMESTAMP_MS = 4
# Where the producer's row begins in the kernel's table; -1 if the batch has no producer id.
ROW_PRODUCER = 5
ROW_SEQUENCE = 6
ROW_OFFSET = 7
ROW_CONNECTION = 8
ROW_EPOCH = 9
# For a batch with a delayed response (acks=all): the position of its error code in `responses` (the
# array of encoded responses), or -1 if the response is not delayed; how many bytes after the error
# code have to become 0xFF if the response becomes an error (offsets and times of -1); the request's
# timeout.
ROW_ANSWER_AT = 10
ROW_ANSWER_ONES = 11
ROW_TIMEOUT_MS = 12
ROW_WORDS = 13
MAX_ROWS = 8192

# --- the row of an entry for the offset and time indexes, in the kernel's table ------------------
INDEX_SLOT = 0
INDEX_LAST_OFFSET = 1
INDEX_POSITION = 2
INDEX_MAX_TIMESTAMP_MS = 3
INDEX_MAX_TIMESTAMP_OFFSET = 4
INDEX_WORDS = 5

# --- where the sections of the kernel's table begin ----------------------------------------------
_SLOT_BUCKETS = 2048
_PRODUCER_BUCKETS = 4096
CONNECTIONS_AT = HEAD_WORDS
SLOTS_AT = CONNECTIONS_AT + MAX_CONNECTIONS * CONNECTION_WORDS
TOUCHED_AT = SLOTS_AT + MAX_SLOTS * SLOT_WORDS
PRODUCERS_AT = TOUCHED_AT + MAX_SLOTS
ROWS_AT = PRODUCERS_AT + MAX_PRODUCERS * PRODUCER_WORDS
INDEX_ROWS_AT = ROWS_AT + MAX_ROWS * ROW_WORDS
SLOT_BUCKETS_AT = INDEX_ROWS_AT + MAX_ROWS * INDEX_WORDS
PRODUCER_BUCKETS_AT = SLOT_BUCKETS_AT + _SLOT_BUCKETS
WALKED_AT = PRODUCER_BUCKETS_AT + _PRODUCER_BUCKETS
TABLE_WORDS = WALKED_AT + RESULT_FIELDS
NAMES_BYTES = MAX_SLOTS * NAME_BYTES
RESPONSES_BYTES = 1024 * 1024

# --- constants of Produce in Kafka's protocol; test_kernel_tables.py compares them with it --------
PRODUCE = 0
FIRST_VERSION = 3
LAST_VERSION = 13
FIRST_FLEXIBLE = 9
FIRST_WITH_TOPIC_ID = 13
FIRST_WITH_LOG_START = 5
FIRST_WITH_ERROR_MESSAGE = 8
FRAME_HEAD_BYTES = 14  # frame size, API key, version, correlation id, length of the client id
TOPIC_ID_BYTES = 16
# Upper bounds for the bytes of a response: for each of its partitions, for each of its topics
# (without the name), and for all other fields together.
RESPONSE_PARTITION_BYTES = 48
RESPONSE_TOPIC_BYTES = 16
RESPONSE_OTHER_BYTES = 32
_MOST_COUNT = 126  # the largest count or length that flexible versions write in one byte


# --- views of arrays without reference counting --------------------------------------------------
def _make_unowned() -> Any:
    """Return a function that makes a view of an array without reference counting.

    Compiled code counts references to an array at each call with the array as argument, by an
    atomic instruction: that costs more than all checks of a small batch. The kernel's caller holds
    the arrays, so views without an owner are safe.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        view.meminfo = numba.core.cgutils.get_null_value(view.meminfo.type)
        return view._getvalue()

    def typed(_: Any, array: Any) -> Any:
        return array(array), generate

    return numba.extending.intrinsic(typed)


unowned: Any = _make_unowned() if COMPILED else None


# --- finding the row (slot) of a partition, and the row of a producer, in the table --------------
@inline
def _find_slot(
    arena: Array,
    name_at: int,
    name_bytes: int,
    by_id: bool,
    partition: int,
    principal: int,
    table: Array,
    names: Array,
) -> int:
    """Return the position, in the kernel's table, of the slot (the partition's row) for this topic,
    partition and principal; make a new slot if none exists. Return -1 if no slot is free."""
    mark = 1 if by_id else 0
    # A CRC is below 2^32, a partition and a principal below 2^31: the sum is below 2^49, and cannot
    # overflow an int64.
    found_hash = crc32c(arena, name_at, name_at + name_bytes) + partition * 40_503 + mark
    found_hash += principal * 60_493
    bucket = (found_hash ^ found_hash >> 11) & (_SLOT_BUCKETS - 1)
    while True:
        # The hash table has more buckets than there are slots (partitions' rows), so the loop
        # always finds an empty bucket.
        number = int(table[SLOT_BUCKETS_AT + bucket]) - 1
        if number < 0:
            break
        slot = SLOTS_AT + number * SLOT_WORDS
        if (
            table[slot + SLOT_HASH] == found_hash
            and table[slot + SLOT_PARTITION] == partition
            and table[slot + SLOT_PRINCIPAL] == principal
            and table[slot + SLOT_BY_ID] == mark
            and table[slot + SLOT_NAME_BYTES] == name_bytes
        ):
            start = number * NAME_BYTES
            i = 0
            while i < name_bytes and byte_at(arena, name_at + i) == byte_at(names, start + i):
                i += 1
            if i == name_bytes:
                return slot
        bucket = (bucket + 1) & (_SLOT_BUCKETS - 1)
    number = int(table[HEAD_SLOTS])
    if number == MAX_SLOTS:
        return -1
    table[HEAD_SLOTS] = number + 1
    table[SLOT_BUCKETS_AT + bucket] = number + 1
    slot = SLOTS_AT + number * SLOT_WORDS
    table[slot + SLOT_ROUND] = -1
    table[slot + SLOT_REQUEST] = -1
    table[slot + SLOT_HASH] = found_hash
    table[slot + SLOT_PARTITION] = partition
    table[slot + SLOT_PRINCIPAL] = principal
    table[slot + SLOT_BY_ID] = mark
    table[slot + SLOT_NAME_BYTES] = name_bytes
    copy_bytes(names, number * NAME_BYTES, arena, name_at, name_bytes)
    return slot


@inline
def _find_producer(slot: int, producer_id: int, table: Array) -> int:
    """Return the position, in the kernel's table, of the row of this producer for the slot's
    partition. If the producer has no row in this produce plan (list of appends) yet, begin a new
    one; return -1 if the section of producers is full.

    Each produce plan has its own producers, so a bucket of the hash table that an older plan filled
    counts as empty. The current plan has filled a bucket if the producer to which the bucket leads
    has this plan's number as PRODUCER_ROUND, and this bucket's number as PRODUCER_BUCKET.
    """
    current = int(table[HEAD_ROUND])
    mixed = producer_id ^ producer_id >> 17 ^ slot
    bucket = (mixed ^ mixed >> 7) & (_PRODUCER_BUCKETS - 1)
    while True:
        number = int(table[PRODUCER_BUCKETS_AT + bucket]) - 1
        producer = PRODUCERS_AT + number * PRODUCER_WORDS
        # The hash table has more buckets than the kernel's table has rows for producers, so the
        # loop always finds an empty bucket.
        if (
            number < 0
            or table[producer + PRODUCER_ROUND] != current
            or table[producer + PRODUCER_BUCKET] != bucket
        ):
            break
        if table[producer + PRODUCER_SLOT] == slot and table[producer + PRODUCER_ID] == producer_id:
            return producer
        bucket = (bucket + 1) & (_PRODUCER_BUCKETS - 1)
    number = int(table[HEAD_PRODUCERS])
    if number == MAX_PRODUCERS:
        return -1
    table[HEAD_PRODUCERS] = number + 1
    table[PRODUCER_BUCKETS_AT + bucket] = number + 1
    producer = PRODUCERS_AT + number * PRODUCER_WORDS
    table[producer + PRODUCER_ROUND] = current
    table[producer + PRODUCER_SLOT] = slot
    table[producer + PRODUCER_ID] = producer_id
    table[producer + PRODUCER_STATE] = 0
    table[producer + PRODUCER_BATCHES] = 0
    table[producer + PRODUCER_IN_TRANSACTION] = 0
    table[producer + PRODUCER_BEGINS] = 0
    table[producer + PRODUCER_BUCKET] = bucket
    return producer


# --- checking one batch, and giving it its offset ------------------------------------------------
@inline
def _check_batch(
    arena: Array,
    at: int,
    size: int,
    slot: int,
    row: int,
    attributes: int,
    is_only_batch: bool,
    table: Array,
) -> int:
    """Check that the ``size`` bytes of records are one batch to append unchanged except for its
    base offset and leader epoch, and write the facts about the batch that are known before it gets
    its offset into its ``row`` in the kernel's table. A batch may begin a transaction only
    if it ``is_only_batch`` of its request, because the caller asks the transaction coordinator
    about one partition at a time."""
    if (
        size != LOG_OVERHEAD_BYTES + read_i32(arena, at + SIZE_AT)
        or byte_at(arena, at + MAGIC_AT) != MAGIC_V2
        or read_i64(arena, at + BASE_OFFSET_AT) != 0
        # The attributes must not say compression, log append time, control batch or anything
        # unknown.
        or read_i16(arena, at + ATTRIBUTES_AT) != attributes
    ):
        return _STOP
    count = read_i32(arena, at + RECORD_COUNT_AT)
    last_delta = read_i32(arena, at + LAST_OFFSET_DELTA_AT)
    base_timestamp_ms = read_i64(arena, at + BASE_TIMESTAMP_AT)
    max_timestamp_ms = read_i64(arena, at + MAX_TIMESTAMP_AT)
    if (
        count < 1
        or last_delta != count - 1
        or size > table[slot + SLOT_MAX_MESSAGE_BYTES]
        # The limits of the log's active segment: a batch beyond them begins a new segment.
        or table[slot + SLOT_SIZE_BYTES] > table[slot + SLOT_SEGMENT_BYTES] - size
        or table[slot + SLOT_NEXT_OFFSET] > table[slot + SLOT_LAST_OFFSET_LIMIT] - last_delta
        or max_timestamp_ms > table[slot + SLOT_TIMESTAMP_LIMIT_MS]
        or table[slot + SLOT_INDEX_ROWS] >= table[slot + SLOT_INDEX_ROOM]
    ):
        return _STOP
    producer_id = read_i64(arena, at + PRODUCER_ID_AT)
    sequence = read_i32(arena, at + BASE_SEQUENCE_AT)
    epoch = read_i16(arena, at + PRODUCER_EPOCH_AT)
    producer = -1
    if producer_id >= 0:
        if sequence < 0 or epoch < 0:
            return _STOP
        producer = _find_producer(slot, producer_id, table)
        if producer < 0:
            return FULL
        state = int(table[producer + PRODUCER_STATE])
        if state == 0:
            table[HEAD_NEEDED] = (producer - PRODUCERS_AT) // PRODUCER_WORDS
            if attributes == 0 or not is_only_batch:
                return NEED_PRODUCER
            table[producer + PRODUCER_EPOCH] = epoch
            table[producer + PRODUCER_WINDOW] = sequence
            table[producer + PRODUCER_WINDOW + 1] = (sequence + last_delta) & INT32_MAX
            return NEED_TRANSACTION
        if state == PRODUCER_KNOWN and (
            epoch != table[producer + PRODUCER_EPOCH]
            or sequence != (table[producer + PRODUCER_LAST_SEQUENCE] + 1) & INT32_MAX
        ):
            # The batch is a duplicate, leaves a gap in the sequences, or has another producer
            # epoch.
            return _STOP
        if (table[producer + PRODUCER_IN_TRANSACTION] != 0) != (attributes != 0):
            # A transactional batch while its producer has no open transaction in the partition, or
            # a non-transactional batch while it has one.
            return _STOP
    elif attributes != 0:
        return _STOP
    if read_u32(arena, at + CRC_AT) != crc32c(arena, at + CRC_START_AT, at + size):
        return _STOP
    walked = table[WALKED_AT : WALKED_AT + RESULT_FIELDS]
    wrong = validate_records(
        arena,
        at + BATCH_HEADER_BYTES,
        at + size,
        count,
        base_timestamp_ms,
        int(table[slot + SLOT_EARLIEST_MS]),
        int(table[slot + SLOT_LATEST_MS]),
        int(table[slot + SLOT_KEY_REQUIRED]),
        walked,
    )
    if wrong != 0 or walked[RESULT_MAX_TIMESTAMP_MS] != max_timestamp_ms:
        return _STOP
    table[row + ROW_SLOT] = slot
    table[row + ROW_AT] = at
    table[row + ROW_BYTES] = size
    table[row + ROW_LAST_DELTA] = last_delta
    table[row + ROW_MAX_TIMESTAMP_MS] = max_timestamp_ms
    table[row + ROW_PRODUCER] = producer
    table[row + ROW_SEQUENCE] = sequence
    table[row + ROW_EPOCH] = epoch
    return _TAKEN


@inline
def _is_of_producer(first_row: int, row: int, table: Array) -> bool:
    """Return whether the batches in both rows have the same producer id and epoch."""
    producer, other = int(table[row + ROW_PRODUCER]), int(table[first_row + ROW_PRODUCER])
    same_id = table[producer + PRODUCER_ID] == table[other + PRODUCER_ID]
    same_epoch = table[row + ROW_EPOCH] == table[first_row + ROW_EPOCH]
    return bool(same_id and same_epoch)


@inline
def _apply_row(row: int, connection: int, table: Array) -> None:
    """Give the batch its offset, and update the rows of its partition and its producer in the
    kernel's table, so that the next batch is checked against these."""
    slot = int(table[row + ROW_SLOT])
    size = int(table[row + ROW_BYTES])
    offset = int(table[slot + SLOT_NEXT_OFFSET])
    last_offset = offset + int(table[row + ROW_LAST_DELTA])
    max_timestamp_ms = int(table[row + ROW_MAX_TIMESTAMP_MS])
    table[row + ROW_OFFSET] = offset
    table[row + ROW_CONNECTION] = (connection - CONNECTIONS_AT) // CONNECTION_WORDS
    if table[slot + SLOT_BATCHES] == 0:
        table[TOUCHED_AT + table[HEAD_TOUCHED]] = slot
        table[HEAD_TOUCHED] += 1
        table[slot + SLOT_FIRST_TIMESTAMP_MS] = max_timestamp_ms
    if table[slot + SLOT_SIZE_BYTES] == 0:
        # The segment's first batch: its timestamp decides when the segment is rolled.
        limit_ms = int(table[slot + SLOT_UNTIMED_LIMIT_MS])
        if max_timestamp_ms >= 0:
            longest_ms = int(table[slot + SLOT_LONGEST_MS])
            limit_ms = INT64_MAX
            if max_timestamp_ms <= INT64_MAX - longest_ms:
                limit_ms = max_timestamp_ms + longest_ms
        table[slot + SLOT_TIMESTAMP_LIMIT_MS] = limit_ms
    # Update the segment's maximum timestamp, index entries and size in the kernel's table, as
    # Segment.commit does in the segment for a batch that the ordinary Produce handler appends.
    if max_timestamp_ms > table[slot + SLOT_MAX_TIMESTAMP_MS]:
        table[slot + SLOT_MAX_TIMESTAMP_MS] = max_timestamp_ms
        table[slot + SLOT_MAX_TIMESTAMP_OFFSET] = last_offset
    if table[slot + SLOT_SINCE_INDEX_ENTRY] > table[slot + SLOT_INDEX_INTERVAL]:
        entry = INDEX_ROWS_AT + int(table[HEAD_INDEX_ROWS]) * INDEX_WORDS
        table[HEAD_INDEX_ROWS] += 1
        table[entry + INDEX_SLOT] = (slot - SLOTS_AT) // SLOT_WORDS
        table[entry + INDEX_LAST_OFFSET] = last_offset
        table[entry + INDEX_POSITION] = table[slot + SLOT_SIZE_BYTES]
        table[entry + INDEX_MAX_TIMESTAMP_MS] = table[slot + SLOT_MAX_TIMESTAMP_MS]
        table[entry + INDEX_MAX_TIMESTAMP_OFFSET] = table[slot + SLOT_MAX_TIMESTAMP_OFFSET]
        table[slot + SLOT_INDEX_ROWS] += 1
        table[slot + SLOT_SINCE_INDEX_ENTRY] = 0
    table[slot + SLOT_SINCE_INDEX_ENTRY] += size
    table[slot + SLOT_SIZE_BYTES] += size
    table[slot + SLOT_BYTES] += size
    table[slot + SLOT_BATCHES] += 1
    table[slot + SLOT_NEXT_OFFSET] = last_offset + 1
    producer = int(table[row + ROW_PRODUCER])
    if producer >= 0:
        first_sequence = int(table[row + ROW_SEQUENCE])
        last_sequence = (first_sequence + int(table[row + ROW_LAST_DELTA])) & INT32_MAX
        number = int(table[producer + PRODUCER_BATCHES])
        if number == 0:
            table[producer + PRODUCER_FIRST_OFFSET] = offset
        place = producer + PRODUCER_WINDOW + number % WINDOW_BATCHES * WINDOW_WORDS
        table[place] = first_sequence
        table[place + 1] = last_sequence
        table[place + 2] = offset
        table[place + 3] = last_offset
        table[place + 4] = max_timestamp_ms
        table[producer + PRODUCER_BATCHES] = number + 1
        # A producer unknown to the log begins with the epoch of its batch.
        table[producer + PRODUCER_STATE] = PRODUCER_KNOWN
        table[producer + PRODUCER_EPOCH] = table[row + ROW_EPOCH]
        table[producer + PRODUCER_LAST_SEQUENCE] = last_sequence


# --- reading and planning one request ------------------------------------------------------------
@inline
def _read_size(arena: Array, at: int, end: int) -> tuple[int, int]:
    """Return the size of a partition's records in a flexible version, and the position after the
    size. The size is -1 if it is null, cut off, or longer than four bytes."""
    raw = 0
    for i in range(4):
        if at >= end:
            return -1, end
        byte = byte_at(arena, at)
        at += 1
        raw |= (byte & 0x7F) << (7 * i)  # below 2^28
        if byte < 0x80:
            return raw - 1, at
    return -1, end


@inline
def _take_frame(
    arena: Array, at: int, end: int, connection: int, table: Array, names: Array, responses: Array
) -> int:
    """Plan the appends of the whole request that ends at ``end``, or of no part of it. Return
    _TAKEN (they are planned), _STOP (the ordinary Produce handler has to serve the request), FULL
    (a section of the table, or ``responses``, is full) or a NEED_ result (the caller has to fill a
    row of the table, and call again)."""
    if end - at < FRAME_HEAD_BYTES or read_i16(arena, at + 4) != PRODUCE:
        return _STOP
    version = read_i16(arena, at + 6)
    if version < FIRST_VERSION or version > LAST_VERSION:
        return _STOP
    correlation_id = read_i32(arena, at + 8)
    client_id_bytes = read_i16(arena, at + 12)
    at += FRAME_HEAD_BYTES
    if client_id_bytes > 0:
        if client_id_bytes > end - at or not is_utf8(arena, at, at + client_id_bytes):
            return _STOP
        at += client_id_bytes
    is_flexible = version >= FIRST_FLEXIBLE
    if end - at < 2:
        return _STOP
    if is_flexible:
        # The header's tags must be absent; then comes the length of the transactional id plus one.
        id_bytes = byte_at(arena, at + 1) - 1
        if byte_at(arena, at) != 0 or id_bytes > _MOST_COUNT:
            return _STOP
    else:
        id_bytes = read_i16(arena, at)
    at += 2
    # A request with a transactional id has only transactional batches; any other request has no
    # transactional batch.
    attributes = 0
    if id_bytes >= 0:
        if table[HEAD_LEAVES_TRANSACTIONS] != 0:
            return _STOP
        attributes = TRANSACTIONAL_BIT
        if id_bytes > end - at or not is_utf8(arena, at, at + id_bytes):
            return _STOP
        table[HEAD_TRANSACTIONAL_ID_AT] = at
        table[HEAD_TRANSACTIONAL_ID_BYTES] = id_bytes
        table[HEAD_VERSION] = version
        at += id_bytes
    # The next fields are acks, timeout and number of topics.
    if is_flexible:
        if end - at < 7:
            return _STOP
        topics = byte_at(arena, at + 6) - 1
        if topics > _MOST_COUNT:
            return _STOP
        acks = read_i16(arena, at)
        timeout_ms = read_i32(arena, at + 2)
        at += 7
    else:
        if end - at < 10:
            return _STOP
        acks = read_i16(arena, at)
        timeout_ms = read_i32(arena, at + 2)
        topics = read_i32(arena, at + 6)
        at += 10
    if topics < 1 or acks < -1 or acks > 1:
        return _STOP
    stamp = int(table[HEAD_REQUEST_STAMP]) + 1
    table[HEAD_REQUEST_STAMP] = stamp
    first_row = int(table[HEAD_ROWS])
    rows = first_row
    out = int(table[HEAD_RESPONSE_END])
    response_at = out
    if len(responses) - out < RESPONSE_OTHER_BYTES:
        return FULL
    write_i32(responses, out + 4, correlation_id)
    out += 8
    if is_flexible:
        responses[out] = 0
        responses[out + 1] = topics + 1
        out += 2
    else:
        write_i32(responses, out, topics)
        out += 4
    for _ in range(topics):
        # The topic's name or id is copied into the response.
        name_at = at
        if version >= FIRST_WITH_TOPIC_ID:
            name_bytes = TOPIC_ID_BYTES
        elif is_flexible:
            if end - at < 1:
                return _STOP
            name_bytes = byte_at(arena, at) - 1
            if name_bytes > _MOST_COUNT:
                return _STOP
            name_at += 1
        else:
            if end - at < 2:
                return _STOP
            name_bytes = read_i16(arena, at)
            name_at += 2
        if name_bytes < 1 or name_bytes > NAME_BYTES or name_bytes > end - name_at:
            return _STOP
        if len(responses) - out < name_bytes + RESPONSE_TOPIC_BYTES + RESPONSE_OTHER_BYTES:
            return FULL
        copy_bytes(responses, out, arena, at, name_at + name_bytes - at)
        out += name_at + name_bytes - at
        at = name_at + name_bytes
        if is_flexible:
            if end - at < 1:
                return _STOP
            partitions = byte_at(arena, at) - 1
            at += 1
            if partitions > _MOST_COUNT:
                return _STOP
            responses[out] = partitions + 1
            out += 1
        else:
            if end - at < 4:
                return _STOP
            partitions = read_i32(arena, at)
            at += 4
            write_i32(responses, out, partitions)
            out += 4
        if partitions < 1:
            return _STOP
        for _ in range(partitions):
            if len(responses) - out < RESPONSE_PARTITION_BYTES + RESPONSE_OTHER_BYTES:
                return FULL
            if rows == MAX_ROWS:
                return FULL
            if end - at < 8:
                return _STOP
            partition = read_i32(arena, at)
            at += 4
            if is_flexible:
                size, at = _read_size(arena, at, end)
            else:
                size = read_i32(arena, at)
                at += 4
            if partition < 0 or size < BATCH_HEADER_BYTES or size > end - at:
                return _STOP
            slot = _find_slot(
                arena,
                name_at,
                name_bytes,
                version >= FIRST_WITH_TOPIC_ID,
                partition,
                int(table[connection + CONNECTION_PRINCIPAL]),
                table,
                names,
            )
            if slot < 0:
                return FULL
            if table[slot + SLOT_ROUND] != table[HEAD_ROUND]:
                table[HEAD_NEEDED] = (slot - SLOTS_AT) // SLOT_WORDS
                return NEED_SLOT
            if table[slot + SLOT_STATE] != SLOT_READY:
                return _STOP
            # A partition can have several slots (rows in the table), such as one for its topic's
            # name and one for the topic's id: use the one that the caller has filled for this
            # produce plan (list of appends).
            slot = int(table[slot + SLOT_TARGET])
            if acks == -1 and table[slot + SLOT_ACKS_ALL] == ACKS_ALL_NEVER:
                return _STOP
            # The compiled kernel takes only requests with one batch for each partition: all batches
            # of a request are checked before any gets its offset, so a second batch would not be
            # checked against the first one.
            if table[slot + SLOT_REQUEST] == stamp:
                return _STOP
            table[slot + SLOT_REQUEST] = stamp
            row = ROWS_AT + rows * ROW_WORDS
            is_only_batch = topics == 1 and partitions == 1
            what = _check_batch(arena, at, size, slot, row, attributes, is_only_batch, table)
            if what != _TAKEN:
                return what
            if attributes != 0 and not _is_of_producer(ROWS_AT + first_row * ROW_WORDS, row, table):
                return _STOP
            table[row + ROW_ANSWER_AT] = -1
            if acks == -1 and table[slot + SLOT_ACKS_ALL] == ACKS_ALL_LATER:
                table[row + ROW_ANSWER_AT] = out + 4
                table[row + ROW_ANSWER_ONES] = 24 if version >= FIRST_WITH_LOG_START else 16
                table[row + ROW_TIMEOUT_MS] = timeout_ms
            rows += 1
            at += size
            write_i32(responses, out, partition)
            responses[out + 4] = 0
            responses[out + 5] = 0
            write_i64(responses, out + 6, int(table[slot + SLOT_NEXT_OFFSET]))
            write_i64(responses, out + 14, -1)
            out += 22
            if version >= FIRST_WITH_LOG_START:
                write_i64(responses, out, int(table[slot + SLOT_LOG_START_OFFSET]))
                out += 8
            if is_flexible:
                if end - at < 1 or byte_at(arena, at) != 0:
                    return _STOP
                at += 1
                responses[out] = 1  # no record errors: an empty array's length plus one
                responses[out + 1] = 0  # no message
                responses[out + 2] = 0  # no tags
                out += 3
            elif version >= FIRST_WITH_ERROR_MESSAGE:
                write_i32(responses, out, 0)
                responses[out + 4] = 0xFF
                responses[out + 5] = 0xFF
                out += 6
        if is_flexible:
            if end - at < 1 or byte_at(arena, at) != 0:
                return _STOP
            at += 1
            responses[out] = 0
            out += 1
    if is_flexible:
        if end - at < 1 or byte_at(arena, at) != 0:
            return _STOP
        at += 1
    if at != end:
        return _STOP
    write_i32(responses, out, 0)  # throttle time
    out += 4
    if is_flexible:
        responses[out] = 0
        out += 1
    write_i32(responses, response_at, out - response_at - 4)
    # The request is accepted: no check can fail from here on.
    for i in range(first_row, rows):
        row = ROWS_AT + i * ROW_WORDS
        _apply_row(row, connection, table)
        if table[row + ROW_ANSWER_AT] >= 0:
            table[HEAD_HELD] += 1
    table[HEAD_ROWS] = rows
    if table[HEAD_REQUESTS] == 0:
        for i in range(HEAD_VERSIONS, HEAD_WORDS):
            table[i] = 0
    table[HEAD_VERSIONS + version] += 1
    table[HEAD_REQUESTS] += 1
    table[connection + CONNECTION_REQUESTS] += 1
    if acks != 0:
        table[HEAD_RESPONSE_END] = out
        table[connection + CONNECTION_RESPONSES_END] = out
    return _TAKEN


# --- planning the requests of all connections ----------------------------------------------------
@inline
def _gather(arena: Array, table: Array, batches: Array) -> None:
    """Copy the batches that the compiled kernel has accepted from the arena (the receive buffer) to
    ``batches``, partition by partition, because the caller writes the batches of a partition at
    once. Set their offsets and leader epochs."""
    out = 0
    for i in range(int(table[HEAD_TOUCHED])):
        slot = int(table[TOUCHED_AT + i])
        table[slot + SLOT_OUT] = out
        out += int(table[slot + SLOT_BYTES])
    for i in range(int(table[HEAD_ROWS])):
        row = ROWS_AT + i * ROW_WORDS
        slot = int(table[row + ROW_SLOT])
        size = int(table[row + ROW_BYTES])
        to = int(table[slot + SLOT_OUT])
        copy_bytes(batches, to, arena, int(table[row + ROW_AT]), size)
        write_i64(batches, to + BASE_OFFSET_AT, int(table[row + ROW_OFFSET]))
        write_i32(batches, to + LEADER_EPOCH_AT, int(table[slot + SLOT_LEADER_EPOCH]))
        table[slot + SLOT_OUT] = to + size
    for i in range(int(table[HEAD_TOUCHED])):
        slot = int(table[TOUCHED_AT + i])
        table[slot + SLOT_OUT] -= table[slot + SLOT_BYTES]


@inline
def _plan(arena: Array, table: Array, names: Array, responses: Array, batches: Array) -> int:
    connections = int(table[HEAD_CONNECTIONS])
    status = DONE
    while status == DONE and table[HEAD_CONNECTION] < connections:
        connection = CONNECTIONS_AT + int(table[HEAD_CONNECTION]) * CONNECTION_WORDS
        at = int(table[connection + CONNECTION_AT])
        end = int(table[connection + CONNECTION_END])
        what = _TAKEN
        while what == _TAKEN:
            what = _STOP
            if end - at < FRAME_HEAD_BYTES:
                break
            size = read_i32(arena, at)
            if size < 0 or size > end - at - 4 or size > table[HEAD_MAX_REQUEST_BYTES]:
                break
            what = _take_frame(arena, at, at + 4 + size, connection, table, names, responses)
            if what == _TAKEN:
                at += 4 + size
                table[connection + CONNECTION_AT] = at
        if what == _STOP:
            table[HEAD_CONNECTION] += 1
            if table[HEAD_CONNECTION] < connections:
                following = connection + CONNECTION_WORDS
                table[following + CONNECTION_RESPONSES_AT] = table[HEAD_RESPONSE_END]
                table[following + CONNECTION_RESPONSES_END] = table[HEAD_RESPONSE_END]
        else:
            status = what
    if status in (DONE, FULL):
        _gather(arena, table, batches)
    return status


@kernel("in8", "out64", "out8", "out8", "out8")
def plan_produce(arena: Array, table: Array, names: Array, responses: Array, batches: Array) -> int:
    """Plan the appends for the requests of the connections in ``table``: check the batches, and
    assign their offsets. Continue where the last call stopped.

    Return DONE, FULL or a NEED_ result. After DONE and FULL, ``batches`` (as large as the receive
    arena) has the accepted batches with their offsets and leader epochs: those of one partition lie
    side by side, from the position SLOT_OUT of its slot (row in the table) on. ``responses``
    has the encoded responses, connection by connection.
    """
    return _plan(
        unowned(arena), unowned(table), unowned(names), unowned(responses), unowned(batches)
    )
