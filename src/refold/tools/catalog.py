"""The kinds of tools that playbooks can name: the list alone, in the order of the reference page.

Each kind is described next to its tool. To add one, write a room or a file with its `ToolInfo`, and add it here and to
`refold.wiring.tools`, which makes the tool.
"""

from collections.abc import Mapping

from refold.registry import TOOLS, Installed
from refold.tool_api import ToolInfo
from refold.tools.agent.info import AGENT
from refold.tools.artifact.info import ARTIFACT
from refold.tools.container.info import CONTAINER
from refold.tools.engine_kinds import GATE, PLAYBOOK, POLL, QUALITY, WAIT
from refold.tools.http.info import HTTP
from refold.tools.llm.info import LLM
from refold.tools.mcp.info import MCP
from refold.tools.python.info import PYTHON
from refold.tools.shell.info import SHELL
from refold.tools.simple import ASSERT, EMIT, NOOP
from refold.tools.sql.info import DUCKDB, POSTGRES, SQLITE
from refold.tools.transfer.info import TRANSFER

KINDS = (
    *(PYTHON, SHELL, HTTP, NOOP, ASSERT),
    *(SQLITE, DUCKDB, POSTGRES, TRANSFER),
    *(ARTIFACT, EMIT, CONTAINER, MCP, LLM, AGENT),
    *(WAIT, GATE, QUALITY, POLL, PLAYBOOK),
)
CATALOG: Mapping[str, ToolInfo] = {info.kind: info for info in KINDS}


def installed_tools() -> Mapping[str, ToolInfo]:
    """Return the catalog with the kinds that installed packages add."""
    return Installed(CATALOG, TOOLS)
