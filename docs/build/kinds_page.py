"""A reference page of kinds of tools or sources, from their descriptions."""

from collections.abc import Iterator, Mapping

from refold.tool_api import ToolInfo, ToolKey


def kinds_page(head: str, catalog: Mapping[str, ToolInfo], result_label: str) -> str:
    """Return the page: each kind with its examples, its keys, and its result after `result_label`."""
    sections = (_section(info, result_label) for info in catalog.values())
    return "\n".join([head, *map("\n".join, sections)])


def _section(info: ToolInfo, result_label: str) -> Iterator[str]:
    yield f"## `{info.kind}`\n\n{info.about}\n"
    for example in info.example.split("---\n"):
        if example:
            yield f"```yaml\n{example}```\n"
    yield "| key | type | about |\n| --- | --- | --- |"
    yield from map(_row, info.keys)
    yield f"\n{result_label}: {info.result}.\n"


def _row(key: ToolKey) -> str:
    flags = {"required": key.required, "static": key.static, "may be secret": key.secret}
    notes = [key.type, *(name for name, is_set in flags.items() if is_set)]
    choices = f" (one of {', '.join(f'`{choice}`' for choice in key.choices)})" if key.choices else ""
    return f"| `{key.name}` | {', '.join(notes)} | {key.about}{choices} |"
