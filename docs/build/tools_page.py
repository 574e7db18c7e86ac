"""The page on tools in the documentation, from the catalog: `python -m docs.build.tools_page` prints it."""

from collections.abc import Mapping

from docs.build.kinds_page import kinds_page
from refold.tool_api import ToolInfo
from refold.tools.catalog import CATALOG, installed_tools

HEAD = """# Tools

What a step can do, by the `kind` of its tool. This page is printed from the catalog, by
`python -m docs.build.tools_page`; do not edit it.

Every value of a key may hold expressions, `{{ ... }}`, unless the key is *static*: that is taken as it is written.
Besides the keys listed here a tool has `kind`, and `input`, the values that are bound for it. The idempotency key,
`RUN/STEP/VISIT` (and `/ITEM` in a loop), is the same in every try, so that the far side can recognise a repetition.
"""


def page(catalog: Mapping[str, ToolInfo] = CATALOG) -> str:
    return kinds_page(HEAD, catalog, "Result")


if __name__ == "__main__":
    print(page(installed_tools()), end="")
