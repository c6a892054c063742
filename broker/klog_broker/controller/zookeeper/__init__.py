"""The controller of a cluster over ZooKeeper.

Start reading at controller_election.py (which broker is the controller), fenced_writes.py (the only
way in which a controller writes to ZooKeeper) and controller.py (the event loop of a controller).
cluster_state.py holds the state that events change; znode_reader.py and znode_writer.py read and
write ZooKeeper. The events are in topic_events.py, deletions.py, failed_replicas.py and
controller_requests.py. request_batch.py, request_queues.py and request_sender.py make and send
LeaderAndIsr, UpdateMetadata and StopReplica requests.
May import: controller.decisions, metadata, config, runtime, and klog's shared packages.
"""
