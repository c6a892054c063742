"""Brokers without partitions in a cluster: they register, elect a controller and lose both again.

The code is the broker's own (membership/member.py) on the simulated ZooKeeper; a seed chooses the
faults. Start reading at run.py; checks.py has the promises, mutants.py the brokers with a bug.
"""
