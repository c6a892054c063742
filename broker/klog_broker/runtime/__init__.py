"""The broker's base layer: event loop, timers, purgatory, threads, sockets, files and clocks.

May import: pyspark_klog.{ids,errors} and the standard library. Exceptions: peers.py imports
pyspark_klog.client, net/socket_kernel.py and system/compiling.py import
pyspark_klog.records.kernels (the former numpy, too), and zookeeper/kazoo_carrier.py imports kazoo.
Start reading at event_loop/loop.py. The simulations in the tests replace net/poller.py,
net/sockets.py, disk/files.py, system/clock.py and zookeeper/sessions.py.
"""
