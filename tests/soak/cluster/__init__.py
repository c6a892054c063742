"""Three brokers and a ZooKeeper through faults: ``./dev soak cluster``.

``plan`` says what befalls them, ``ways`` and ``split_cluster`` make it possible without root,
``sight`` looks at the cluster, ``replicas`` at its files, and ``soak`` does it all.
"""
