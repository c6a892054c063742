"""The `klog` command: `main`, and a module for each subcommand, imported when it is called.

Start reading at commands.py; the module of a subcommand ends in `command`. May import: everything
of klog_broker (late, inside the commands) and pyspark_klog.client.
"""


def main() -> None:
    """Entry point of the `klog` script."""
    from klog_broker.cli.commands import command

    command(prog_name="klog")
