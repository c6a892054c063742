"""The `klog` command: `main`, and a module for each subcommand, imported only when it is called.

Start reading at commands.py; the main function of a subcommand's module is `command`. May import:
everything of klog_broker (late, inside the commands) and pyspark_klog.client.
"""


def main() -> None:
    """Run the `klog` command; the entry point of the script."""
    from klog_broker.cli.commands import command
    from pyspark_klog.closed_pipe import quiet_on_closed_pipe

    with quiet_on_closed_pipe():
        command(prog_name="klog")
