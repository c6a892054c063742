"""`klog completion`: what a shell reads in order to complete klog's command line."""

import click
from click.shell_completion import ShellComplete, get_completion_class

_HELP = """Print a shell's completion of this command.

\b
bash: klog completion bash >> ~/.bashrc
zsh:  klog completion zsh >> ~/.zshrc      (after compinit)
fish: klog completion fish > ~/.config/fish/completions/klog.fish
"""


@click.command("completion", help=_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """See _HELP."""
    # Imported late: group.py knows this module by its name alone.
    from klog_broker.cli.commands import command as klog

    kind = get_completion_class(shell)
    assert kind is not None
    # Not bash's own `source`: it starts a bash to ask for its version, also where none is.
    click.echo(ShellComplete.source(kind(klog, {}, "klog", "_KLOG_COMPLETE")))
