"""Places in the arrays of int64 of the kernel of transactions."""

from itertools import count

_place = count()
TXN_TRANSACTIONS = next(_place)
TXN_BATCHES = next(_place)  # batches of a transaction, each a request
TXN_RECORDS = next(_place)  # of a batch
TXN_IN_FLIGHT = next(_place)  # the most requests of a connection without a response
TXN_ENDS = next(_place)  # 0: no EndTxn, batches of an idempotent producer
TXN_CONNECTIONS = next(_place)
TXN_DEADLINE_NS = next(_place)  # monotonic
TXN_PRODUCE_BYTES = next(_place)  # of a Produce frame
TXN_BATCH_START_AT = next(_place)
TXN_BATCH_END_AT = next(_place)
TXN_OFFSET_AT = next(_place)  # in a response to Produce; the error code stands right before it
TXN_END_BYTES = next(_place)  # of an EndTxn frame
TXN_END_PRODUCER_AT = next(_place)  # the epoch stands right behind it
TXN_ENDED_PRODUCER_AT = next(_place)  # in a response to EndTxn; the error code is right before it
TXN_EVENT_BYTES = next(_place)  # of struct epoll_event
TXN_EVENT_FD_AT = next(_place)
TXN_WORDS = next(_place)

# The state of one connection.
_place = count()
BOOK_SOCKET = next(_place)
BOOK_PRODUCER_ID = next(_place)
BOOK_EPOCH = next(_place)
BOOK_SEQUENCE = next(_place)  # of the transaction's first record
BOOK_SENT = next(_place)  # batches of the transaction
BOOK_APPENDED = next(_place)
BOOK_REFUSED = next(_place)  # 1: a batch must be sent again, with all that follow it
BOOK_PHASE = next(_place)
BOOK_REQUESTS = next(_place)  # sent: correlation ids
BOOK_REPLIES = next(_place)
BOOK_LAST_OFFSET = next(_place)
BOOK_FILLED = next(_place)  # bytes in its part of the inbox
BOOK_BEGAN_NS = next(_place)
BOOK_WAKE_NS = next(_place)  # 0: the connection does not pause
BOOK_WORDS = next(_place)

PHASE_IDLE = 0
PHASE_PRODUCING = 1
PHASE_ENDING = 2

# The state that all connections share.
_place = count()
SHARED_BEGUN = next(_place)
SHARED_ENDED = next(_place)
SHARED_RETRIES = next(_place)
SHARED_REPLY_AT = next(_place)  # place of an unexpected response in the inbox
SHARED_IS_PRODUCE = next(_place)
SHARED_WORDS = next(_place)
