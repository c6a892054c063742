"""All bounds of the network: what one connection, and one event-loop turn, may use.

docs/bounds.md has a table of these bounds.
"""

RECEIVE_BYTES = 128 * 1024
"""The most bytes received from one connection in one turn (fairness), and the most unparsed bytes
of a connection that must not begin further requests."""

BULK_RECEIVE_BYTES = 1024 * 1024
"""The most bytes received in one turn from a connection whose last plan took over half of
RECEIVE_BYTES. All ready connections share this number, but each gets at least RECEIVE_BYTES. Fewer,
larger turns cost less for each byte."""

LEAST_RECEIVE_BYTES = 16 * 1024
"""If fewer bytes than this are free in the arena, a connection waits for the next turn."""

LARGE_RECEIVE_BYTES = 1024 * 1024
"""The most bytes received in one turn from a connection within a frame above RECEIVE_BYTES."""

ARENA_BYTES = 4 * 1024 * 1024
"""The size of the arena: the most bytes received from all connections in one turn, without large
frames."""

POOLED_BYTES = 32 * 1024 * 1024
"""The most bytes in pooled free buffers for large frames; further buffers are freed."""

REQUESTS_PER_TURN = 256
"""The most requests of one connection that are begun in one turn (fairness)."""

PENDING_REPLIES = 1024
"""The most outstanding or unsent responses of one connection; at the bound, parsing stops."""

PENDING_REPLY_BYTES = 4 * 1024 * 1024
"""The bytes of unsent responses of one connection at which parsing stops. A single response may be
larger. File regions are not counted, because they take no memory."""

SEND_BYTES = (1024 + 64) * 1024
"""The most bytes sent to one connection in one turn (fairness). A consumer's default is 1 MB for
each partition: a response of this size is sent in one turn, with the bytes around the records."""

PROBED_BYTES = 256 * 1024
"""The size of a file piece that counts as in the page cache if its first and last page are. One
call sends as many such pieces as the turn's share allows."""

READ_AHEAD_BYTES = 4 * 1024 * 1024
"""The bytes that a helper thread reads ahead if the next file piece is not in the page cache."""

ACCEPTS_PER_TURN = 64
"""The most connections accepted from one listener in one turn."""

ACCEPT_PAUSE_MS = 100
"""How long listeners accept nothing after an accept failed for lack of descriptors or memory."""

MIN_REQUEST_BYTES = 8
"""The size of the shortest request header: API key, version and correlation id."""

METADATA_REQUEST_BYTES = 8 * 1024 * 1024
"""The longest request other than Produce. Its elements become objects, which can take 60 times the
memory of the frame, so without this bound one hostile frame would take gigabytes."""
