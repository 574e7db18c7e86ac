"""Reads playbooks for commands, with the catalog of the tools that come with Refold."""

import os
import sys

from refold.authoring.names import meant
from refold.authoring.playbook import Playbook, read
from refold.cli.source import Source
from refold.errors import InvalidValue, NotFound
from refold.tools.catalog import CATALOG

STDIN = "-"


def read_file(file: str) -> Playbook:
    """Raises InvalidPlaybook with all that is wrong with it."""
    if file == STDIN:
        return read(sys.stdin.buffer.read(), "<stdin>", CATALOG, load)
    return read(load(file), file, CATALOG, load)


def load(file: str) -> bytes:
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except FileNotFoundError:
        raise NotFound(f"there is no file {file}{_guess(file)}") from None
    except OSError as error:
        raise InvalidValue(file, f"cannot be read: {error.strerror}") from None


def source_of(playbook: Playbook) -> Source:
    return Source(playbook.file, playbook.source.splitlines(), playbook.places)


def _guess(file: str) -> str:
    folder, name = os.path.split(file)
    try:
        guess = meant(name, [each for each in os.listdir(folder or ".") if each.endswith((".yaml", ".yml"))])
    except OSError:
        return ""
    return f"; did you mean {os.path.join(folder, guess)}?" if guess else ""
