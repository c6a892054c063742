"""Places in a kernel's arrays of int64, for its plan and its state, and its status."""

from itertools import count

_place = count()
PLAN_REQUESTS = next(_place)
PLAN_RECORDS = next(_place)  # records of a request
PLAN_ACKS = next(_place)
PLAN_FRAME_BYTES = next(_place)
PLAN_FRAMES = next(_place)
PLAN_BATCH_START_AT = next(_place)  # in a frame
PLAN_BATCH_END_AT = next(_place)
PLAN_REPLY_BYTES = next(_place)  # bytes of a response without an error, its size included
PLAN_REPLY_OFFSET_AT = next(_place)  # in a response; the error code stands right before it
PLAN_SEQUENCED = next(_place)  # 1: the batches are an idempotent producer's
PLAN_FIRST_SEQUENCE = next(_place)
PLAN_FIRST_OFFSET = next(_place)
PLAN_END_OFFSET = next(_place)
PLAN_OFFSET_AT = next(_place)  # place of the fetch offset in a Fetch request
PLAN_CHECK_CRC = next(_place)
PLAN_SAME_TO = next(_place)  # Fetch before 12: the end of the part that all responses share
PLAN_CONNECTIONS = next(_place)
PLAN_EVENT_BYTES = next(_place)  # of struct epoll_event
PLAN_EVENT_FD_AT = next(_place)
PLAN_DEADLINE_NS = next(_place)  # monotonic
PLAN_WORDS = next(_place)

_place = count()
STATE_SENT = next(_place)
STATE_REPLIES = next(_place)
STATE_NEXT_OFFSET = next(_place)
STATE_REPLY_AT = next(_place)  # in the inbox
STATE_LOG_BYTES = next(_place)  # bytes of whole batches that were received
STATE_WIRE_BYTES = next(_place)
STATE_RECORDS = next(_place)
STATE_WORDS = next(_place)

STATUS_OK = 0
STATUS_CLOSED = 1
STATUS_SOCKET_FAILED = 2
STATUS_TOO_LATE = 3
STATUS_UNEXPECTED_REPLY = 4
STATUS_NOTHING_FETCHED = 5
STATUS_BAD_CRC = 6
STATUS_BAD_BATCH = 7

STATUS_TEXTS = {
    STATUS_CLOSED: "the broker closed the connection",
    STATUS_SOCKET_FAILED: "the socket failed",
    STATUS_TOO_LATE: "the time was over",
    STATUS_UNEXPECTED_REPLY: "an unexpected reply",
    STATUS_NOTHING_FETCHED: "a fetch below the log's end brought nothing",
    STATUS_BAD_CRC: "a batch with a wrong CRC",
    STATUS_BAD_BATCH: "a batch that does not follow the one before it",
}
