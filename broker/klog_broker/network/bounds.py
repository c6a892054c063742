"""What a connection and a turn may take: every bound of the network in one place.

Each is a number of bytes or of things. docs/operations.md has them in its table.
"""

RECEIVE_BYTES = 128 * 1024
"""Received from one connection in one turn (fairness), and held unparsed while it is parked."""

BULK_RECEIVE_BYTES = 1024 * 1024
"""The same for one whose last plan took over half of RECEIVE_BYTES, shared by all
connections that are ready; never less than RECEIVE_BYTES. Fewer, larger turns cost less a byte."""

LEAST_RECEIVE_BYTES = 16 * 1024
"""With less room than this in the arena a receive is put off to the next turn."""

LARGE_RECEIVE_BYTES = 1024 * 1024
"""Received in one turn from a connection in the middle of one frame larger than RECEIVE_BYTES."""

ARENA_BYTES = 4 * 1024 * 1024
"""Received from all connections in one turn into the shared arena."""

POOLED_BYTES = 32 * 1024 * 1024
"""Kept in free buffers for large frames; what is above goes back to the system."""

REQUESTS_PER_TURN = 256
"""Requests of one connection that are begun in one turn (fairness)."""

PENDING_REPLIES = 1024
"""Answers of one connection that are outstanding or unsent; at the bound parsing stops."""

PENDING_REPLY_BYTES = 4 * 1024 * 1024
"""Bytes of answers in memory that wait to be sent; past the bound parsing stops. One answer
alone may be larger. Regions of files are not counted: they take no memory."""

SEND_BYTES = (1024 + 64) * 1024
"""Sent to one connection in one turn (fairness). A consumer's default is 1 MB a partition: such an
answer goes in one turn, with what stands before and behind the records."""

PROBED_BYTES = 256 * 1024
"""A piece of a file that is sent as far as a probe of its two ends tells that it is in the cache.
One call sends as many such pieces as the turn's share allows."""

READ_AHEAD_BYTES = 4 * 1024 * 1024
"""Read ahead by a helper thread when a piece to be sent is not in the cache."""

ACCEPTS_PER_TURN = 64
"""New connections taken from one listener in one turn."""

ACCEPT_PAUSE_MS = 100
"""How long a listener rests after an accept failed for want of descriptors or memory."""

MIN_REQUEST_BYTES = 8
"""The shortest header: key, version and correlation id. A smaller frame is no request."""

METADATA_REQUEST_BYTES = 8 * 1024 * 1024
"""The longest request other than Produce. Its elements become objects, at worst some 60 times as
large as the frame: without a bound of its own one hostile frame would take gigabytes."""
