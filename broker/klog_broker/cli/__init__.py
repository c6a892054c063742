"""The `klog` command: `main`, its subcommands one module each, imported when they are called.

May import: everything of klog_broker (late, inside the commands) and pyspark_klog.client.
Start reading at group.py; a command's module ends in `command`.
"""


def main() -> None:
    """Entry point of the `klog` script."""
    from klog_broker.cli.group import command

    command(prog_name="klog")
