"""The language `refold/v1`, whole: all its tables by their names, and the tables of tools."""

from collections.abc import Mapping

from refold.authoring.file_tables import EXECUTOR, EXECUTOR_SPEC, METADATA, ROOT
from refold.authoring.step_tables import ARC, JOIN, LOOP, LOOP_SPEC, NEXT, NEXT_SPEC, RETRY, STEP
from refold.authoring.tables import Table

_ALL = (ROOT, METADATA, EXECUTOR, EXECUTOR_SPEC, STEP, LOOP, LOOP_SPEC, NEXT, NEXT_SPEC, ARC, JOIN, RETRY)

TABLES: Mapping[str, Table] = {table.name: table for table in _ALL}
