"""`klog completion`: prints the script with which a shell completes klog's command line."""

import click
from click.shell_completion import ShellComplete, get_completion_class

_HELP = """Print a script for completion of klog's command line in a shell.

\b
bash: klog completion bash >> ~/.bashrc
zsh:  klog completion zsh >> ~/.zshrc      (after compinit)
fish: klog completion fish > ~/.config/fish/completions/klog.fish
"""


@click.command("completion", help=_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script; the help text is _HELP."""
    # Imported late: commands.py imports this module when the command is called, so an import at the
    # top would be circular.
    from klog_broker.cli.commands import command as klog

    kind = get_completion_class(shell)
    assert kind is not None
    # Call `source` of the base class: the `source` of click's class for bash runs bash to find its
    # version, and fails if bash is not installed.
    click.echo(ShellComplete.source(kind(klog, {}, "klog", "_KLOG_COMPLETE")))
