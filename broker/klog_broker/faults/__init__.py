"""Faults for tests: errors, delays and lost connections that a test adds to its own broker.

``process.py`` opens the channel only for the hidden option ``--faults-fd``, which only
pyspark_klog.testing passes; no request over the network can add a fault. While no fault is active,
requests take the same way as in a broker without the channel.

Start reading at commands.py, which carries out the commands of the test; interception.py applies
the active faults to requests.
"""
