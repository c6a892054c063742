"""Three brokers and a ZooKeeper through faults: ``./dev soak cluster``.

``plan`` has the faults; ``ways`` and ``split_cluster`` make it possible to cut connections without
root; ``sight`` reads the cluster's metadata, ``replicas`` its files; ``soak`` runs it all.
"""
