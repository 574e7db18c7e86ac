"""The language `refold/v1`, whole: all its tables by their names, and the tables of tools."""

from collections.abc import Mapping

from refold.authoring.blocks.tables import ELIF, IF, PARALLEL, UNTIL, WHILE
from refold.authoring.file_tables import EXECUTOR, EXECUTOR_SPEC, METADATA, ROOT
from refold.authoring.loop_tables import LOOP, LOOP_ORDER, LOOP_SOURCE, LOOP_SPEC
from refold.authoring.rule_tables import ACTION, POLICY, RULE, TASK_SPEC
from refold.authoring.step_tables import ARC, JOIN, NEXT, NEXT_SPEC, OUTPUT, RETRY, STEP
from refold.authoring.tables import Table

_FILE = (ROOT, METADATA, EXECUTOR, EXECUTOR_SPEC)
_STEP = (STEP, LOOP, LOOP_SOURCE, LOOP_ORDER, LOOP_SPEC, NEXT, NEXT_SPEC, ARC, JOIN, OUTPUT, RETRY)
_BLOCKS = (PARALLEL, WHILE, UNTIL, IF, ELIF)
_TASKS = (TASK_SPEC, POLICY, RULE, ACTION)

TABLES: Mapping[str, Table] = {table.name: table for table in (*_FILE, *_STEP, *_TASKS, *_BLOCKS)}
