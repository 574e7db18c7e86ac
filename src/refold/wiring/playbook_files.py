"""Reads a playbook from its file, with the tools, sources and Python workflows that are installed here."""

import os
from pathlib import Path

from refold.errors import NotFound
from refold.playbooks.bindings import Bindings
from refold.playbooks.playbook import Playbook, read
from refold.python.load import describe_workflow
from refold.sources.catalog import installed_sources
from refold.tools.catalog import installed_tools


def playbook(file: str | os.PathLike[str]) -> Playbook:
    """Read a playbook, to start it as any other workflow: `engine.start(refold.playbook("etl.yaml"), day="monday")`.

    Raises NotFound if there is no such file, and InvalidPlaybook, which names every mistake with its line.
    """
    path = os.fspath(file)
    if not os.path.exists(path):
        raise NotFound(f"there is no playbook {os.path.abspath(path)}")

    def load(other: str) -> bytes:
        return Path(other).read_bytes()

    def bindings() -> Bindings:
        from refold.playbooks.bindings_file import bindings_for

        return bindings_for(path, installed_tools(), load, installed_sources)

    return read(
        load(path),
        path,
        installed_tools(),
        load,
        sources=installed_sources,
        code=describe_workflow,
        bindings=bindings,
    )
