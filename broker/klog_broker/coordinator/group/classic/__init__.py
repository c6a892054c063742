"""Classic groups (JoinGroup, SyncGroup, Heartbeat, LeaveGroup): state machine, states and records.

All modules are pure: no I/O, and time and ids are arguments. Start reading at states.py, then
group_machine.py and rebalance.py. Offsets and shards, which all kinds of groups share, are in
coordinator/group/.
"""
