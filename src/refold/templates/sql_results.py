"""The form of what a statement of SQL returns, and the names that NoETL has for it."""

from typing import Any

FORMS = ({"columns", "rows", "row_count"}, {"affected_rows"})
STATEMENTS = tuple(f"command_{number}" for number in range(10))  # all of them name the result of the last statement


def is_sql_result(value: Any) -> bool:
    return type(value) is dict and value.keys() in FORMS
