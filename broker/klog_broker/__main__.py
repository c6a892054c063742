"""``python -m klog_broker``: the same as ``klog broker``."""

from klog_broker.cli.broker import command

if __name__ == "__main__":
    command(prog_name="python -m klog_broker")
