"""A cluster of whole brokers, ZooKeeper and clients in one thread's order, all from one seed.

Each broker is the real one (klog_broker/app.py) on a machine of its own, with a disk and a clock; a
router lies between all of them, their clients and the simulated ZooKeeper. Start reading at run.py,
then machines.py and router.py; faults.py has the faults, checks.py and healed.py the promises.
"""
