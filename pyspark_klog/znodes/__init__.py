"""What ZooKeeper holds of a cluster, as Kafka 3.9.1 writes it there: paths, and values as bytes.

Pure: nothing here talks to ZooKeeper. Paths are those below the chroot of `zookeeper.connect`.
Encoders write Kafka's bytes (its fields in its order, no spaces; the entries of a map in the
order of the mapping). Decoders take what Kafka 3.9.1 takes of older releases, pass over fields
that they do not know, and raise ZnodeError, which names the znode, for everything else.

May import: ids, errors; never protocol, storage, client or spark.
Start reading at paths.py, then topics.py; data.py has what all share.
"""
