"""The promises that the simulation checks, whatever the seed does; each module has one family.

- records: acknowledged or read records survive a kill, and a power cut with ``flush.messages=1``.
  Without flushes a power cut takes only an end of the log that no flush covered. No offset ever
  holds another record. Records of an idempotent producer are there once and in order.
- marks: high watermark, log start offset, log end offset and flushed offset never fall while a
  broker runs, and no fetch passes the high watermark or misses a record.
- retention: only expired records go, and no expired record stays.
- compaction: only superseded records go, and a round leaves none. The last committed record of a
  key stays, and a tombstone and a marker for their time.
- groups: a partition has one owner in a generation. No commit of an old generation, or of a
  replaced static member, succeeds. A fetched offset was committed last.
- transactions: each is visible as a whole or not at all, as its producer was answered: to readers,
  in the markers, and in a group's positions. No transaction outlives its time-out. A new producer
  has a newer epoch. Without flushes a power cut may cut ``__transaction_state``, so such runs have
  no power cuts.
- rest: when all clients have left, connections, delayed operations, timers, buffers, work of helper
  threads and descriptors are gone.

The clients check that each request is answered within its own time-out and six seconds, or that
its connection ends; the machine checks that a changed setting survives every restart.
"""
