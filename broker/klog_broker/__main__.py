"""``python -m klog_broker``: the same as ``klog broker``."""

from klog_broker.cli.broker import command
from pyspark_klog.closed_pipe import quiet_on_closed_pipe

if __name__ == "__main__":
    with quiet_on_closed_pipe():
        command(prog_name="python -m klog_broker")
