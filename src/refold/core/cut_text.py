"""Texts that were cut because they were too long: the mark in the place of what is left out, and its count."""

import re

_MARK = re.compile("… \\[(\\d+) bytes are left out\\] …")


def joined(beginning: str, end: str, left_out: int) -> str:
    """Return the beginning and the end of a text, with the mark between them if something is left out."""
    return f"{beginning}\n… [{left_out} bytes are left out] …\n{end}" if left_out else beginning + end


def left_out_of(text: str) -> int:
    """Return how many bytes are left out of a text; 0 if it has no mark."""
    found = _MARK.search(text)
    return int(found[1]) if found is not None else 0
