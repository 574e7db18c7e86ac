"""The server of the tests of tools, for secrets that are sent to one."""

from tests.tools.conftest import postgres

__all__ = ["postgres"]
