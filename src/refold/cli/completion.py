"""Completion: the script for a shell, and the names of runs."""

import sys

import click
from click.shell_completion import get_completion_class

from refold.cli import database, output
from refold.errors import RefoldError
from refold.queries.runs import list_runs, run_label

HINTS = {
    "bash": "put it into ~/.bashrc:  source <(refold completion bash)",
    "zsh": "put it into ~/.zshrc:  source <(refold completion zsh)",
    "fish": "put it into ~/.config/fish/completions/refold.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(sorted(HINTS)))
def completion(shell: str) -> None:
    """Print the completion script for a shell."""
    found = get_completion_class(shell)
    assert found is not None
    root = click.get_current_context().find_root().command
    output.put_data(found(root, {}, "refold", "_REFOLD_COMPLETE").source())
    if output.is_terminal(sys.stdout):
        output.tell(HINTS[shell])


def names_of_runs(db: str, beginning: str) -> list[str]:
    """The newest first; whatever is wrong, typing goes on."""
    try:
        with database.reading(db) as views:
            rows = list(list_runs(views, limit=100))
    except RefoldError:
        return []
    names = (run_label(row) for row in rows)
    return [name for name in names if name.startswith(beginning) and name.isprintable()]  # a shell gets them raw
