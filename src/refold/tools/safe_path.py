"""Paths that are given by a playbook and must not lead out of a folder."""

import os


def safe_join(folder: str, name: str) -> str | None:
    """The real path of what `name` is in a folder, if it stays in there, links resolved; else None.

    Taken as it is written: nothing in it is decoded or expanded.
    """
    if not name or "\0" in name:
        return None
    try:
        root = os.path.realpath(folder)
        path = os.path.realpath(os.path.join(root, name))
    except (OSError, ValueError):
        return None
    inside = path.startswith(root.rstrip(os.sep) + os.sep)
    return path if inside else None
