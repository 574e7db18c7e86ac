"""The page on sources in the documentation, from the catalog: `python -m docs.build.sources_page` prints it."""

from collections.abc import Mapping

from docs.build.kinds_page import kinds_page
from refold.sources.catalog import CATALOG, installed_sources
from refold.tool_api import ToolInfo

HEAD = """# Sources

Where the items of a loop come from, by the `kind` of the source. This page is printed from the catalog, by
`python -m docs.build.sources_page`; do not edit it.

A source is asked for a page when the loop has room for more items, and not before. With each page comes a *cursor*,
which is stored with it: after a crash the loop resumes after the last page that it has, in whatever process.

Values may hold expressions, `{{ ... }}`, evaluated when the loop is entered, unless the key is *static*: that is taken
as it is written. Where a key *may be secret*, `{secret: name}` means a secret, which is read for each page and
stored nowhere. Keys that a source does not have are refused by their names, and so are columns in `filter`.
"""


def page(catalog: Mapping[str, ToolInfo] = CATALOG) -> str:
    return kinds_page(HEAD, catalog, "Items")


if __name__ == "__main__":
    print(page(installed_sources()), end="")
