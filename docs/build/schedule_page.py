"""The reference of schedules, from their tables: `python -m docs.build.schedule_page` prints it."""

from docs.build.playbook_page import KINDS, section
from refold.playbooks.language.schedule import SCHEDULE_TABLES

HEAD = """\
# Schedules

Every key of files of `kind: Schedule` and `kind: Calendar`. [How to use schedules](../howto/schedules.md) says what
they do. The page is printed by `python -m docs.build.schedule_page` from the tables that the reader uses; do not edit
it.

"""


def page() -> str:
    return "".join([HEAD, *(section(table, KINDS) for table in SCHEDULE_TABLES.values())]).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
