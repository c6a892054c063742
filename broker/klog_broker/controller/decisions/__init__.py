"""The controller's decisions, as pure functions: elections, ISR changes, states and placement.

Start reading at context.py (what the controller knows), then next_state.py and leader_election.py
(the leader and ISR that follow). partition_states.py and replica_states.py hold the states and the
permitted steps between them. May import: metadata.image, and klog's shared packages, but neither
ZooKeeper nor the requests that the controller sends.
"""
