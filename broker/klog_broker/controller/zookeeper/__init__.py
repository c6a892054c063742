"""The controller of a cluster over ZooKeeper.

Start reading at controller_election.py (which broker is the controller), fenced_writes.py (its one
way to write to ZooKeeper) and controller.py (its work). cluster_state.py is what the controller
works on, znode_reader.py and znode_writer.py read and write ZooKeeper. Its events are in
topic_events.py, deletions.py, failed_replicas.py and controller_requests.py. request_batch.py,
request_queues.py and request_sender.py send LeaderAndIsr, UpdateMetadata and StopReplica requests.
May import: controller.decisions, metadata, config, runtime, and klog's shared packages.
"""
