"""`refold completion`: the completion script for a shell."""

import sys

import click
from click.shell_completion import get_completion_class

from refold.cli import output

HINTS = {
    "bash": "put it into ~/.bashrc:  source <(refold completion bash)",
    "zsh": "put it into ~/.zshrc:  source <(refold completion zsh)",
    "fish": "put it into ~/.config/fish/completions/refold.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(sorted(HINTS)))
def completion(shell: str) -> None:
    """Print the completion script for a shell.

    Put one line into the file that the shell reads at its start: `source <(refold completion bash)` into ~/.bashrc,
    `source <(refold completion zsh)` into ~/.zshrc. For fish, write the script to
    ~/.config/fish/completions/refold.fish.
    """
    completer = get_completion_class(shell)
    assert completer is not None
    root = click.get_current_context().find_root().command
    output.print_exact(completer(root, {}, "refold", "_REFOLD_COMPLETE").source())
    if output.is_terminal(sys.stdout):
        output.print_message(HINTS[shell])
