"""The bounds of the network: what one connection, and one event-loop turn, may use.

docs/bounds.md has a table of these bounds.
"""

RECEIVE_BYTES = 128 * 1024
"""The most bytes received in one event-loop turn from a connection that neither sends in bulk
(BULK_RECEIVE_BYTES) nor sends a large frame (LARGE_RECEIVE_BYTES). While none of a connection's
requests may be passed to a handler, receiving stops once this many bytes are unparsed."""

BULK_RECEIVE_BYTES = 1024 * 1024
"""The most bytes received in one event-loop turn from a connection that sends in bulk: the last run
of the compiled produce kernel over the connection's received bytes served more than RECEIVE_BYTES /
2 of them. All connections that are ready in the turn share this number, but each may receive at
least RECEIVE_BYTES. Receiving more in each turn costs less CPU time per byte."""

LEAST_RECEIVE_BYTES = 16 * 1024
"""The fewest bytes of the arena (the receive buffer that all connections share in an event-loop
turn) that must be free, apart from the space for the connection's unparsed bytes, so that a
connection receives into the arena. If fewer are free, the connection receives in the next turn."""

LARGE_RECEIVE_BYTES = 1024 * 1024
"""The most bytes received in one event-loop turn from a connection for a large frame (RECEIVE_BYTES
or more) that arrives in a buffer of its own."""

ARENA_BYTES = 4 * 1024 * 1024
"""The size of the arena, the receive buffer that all connections share: the most bytes received in
one event-loop turn, apart from those received into a connection's own buffer: the bytes of a large
frame (RECEIVE_BYTES or more), and bytes that come while no request may be passed to a handler."""

POOLED_BYTES = 32 * 1024 * 1024
"""The most bytes in the free buffers that the broker keeps for large frames (RECEIVE_BYTES or
more); returned buffers beyond this bound are freed."""

REQUESTS_PER_TURN = 256
"""The most requests of one connection that are passed to handlers in one event-loop turn
(fairness)."""

PENDING_RESPONSES = 1024
"""The length of one connection's queue of responses (outstanding, or waiting for an outstanding one
before them) at which the connection's next request is not passed to a handler."""

PENDING_RESPONSE_BYTES = 4 * 1024 * 1024
"""The bytes of unsent responses of one connection at which its next request is not passed to a
handler. A single response may be larger. Records that are sent from a log file with sendfile are
not counted, because they take no memory."""

SEND_BYTES = (1024 + 64) * 1024
"""Sending to one connection pauses after this many bytes (fairness), until the socket is reported
as writable in a later event-loop turn, or a further response of the connection is complete. Byte
strings in memory may exceed the bound, file regions may not. A consumer fetches 1 MiB from each
partition by default: a response with 1 MiB of records and its other fields fits into one turn."""

PROBED_BYTES = 256 * 1024
"""A file region (records that a response sends from a log file) is probed before sendfile in pieces
of this size. The first piece counts as cached if its first and last page are in the page cache, a
following piece if its last page is. One sendfile call sends as many cached pieces as SEND_BYTES
allows."""

READ_AHEAD_BYTES = 4 * 1024 * 1024
"""The most bytes of a log file that a helper thread reads into the page cache at once, if the next
piece of a response is not there, so that sendfile does not wait for the disk."""

ACCEPTS_PER_TURN = 64
"""The most connections accepted from one listener in one event-loop turn."""

ACCEPT_PAUSE_MS = 100
"""How long listeners accept nothing after an accept failed for lack of file descriptors or memory,
unless a connection closes earlier."""

MIN_REQUEST_BYTES = 8
"""The size of the shortest request header: API key, version and correlation id."""

METADATA_REQUEST_BYTES = 8 * 1024 * 1024
"""The size in bytes of the longest request other than Produce. Decoding makes an object of each
array element of such a request. The objects can take 60 times the memory of the frame, so without
this bound one hostile frame would take gigabytes."""
