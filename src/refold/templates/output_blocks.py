"""Output blocks in the answers of agents and scripts: how one is found, checked, and read for markers and context.

A block is JSON between two marks in a longer text. The rules of a schema, if there are any, come from
`playbooks/wf/schemas.py` as plain data, which is part of the plan.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct

OPENING = re.compile(r"<<<(?:FLOW|CONDUCTOR)_OUTPUT>>>(?=\s*[{\[`])")
CLOSING = re.compile(r"<<<END_(?:FLOW|CONDUCTOR)_OUTPUT>>>")
FENCE = re.compile(r"(`+)[A-Za-z0-9_+-]*")
_REPAIRED = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])', re.DOTALL)
_BACKSLASH = re.compile(r"\\(.)", re.DOTALL)
ESCAPES = frozenset('"\\/bfnrtu')
SHORT = 2_000  # characters of the output of a script that are its context
OWN = frozenset({"markers", "context"})
SEVERITIES = ("critical", "high")
MOST_PROBLEMS = 10

Rules = Mapping[str, Any]
"""A schema: `fields`, by name, and `markers`, or null if it names none."""


class Unfit(Exception):
    """An answer does not fit its schema; the message says how, for the next try."""


class Block(Struct, frozen=True):
    """What an answer says; `value` is None if it has no block. The warning is for people."""

    value: dict[str, Any] | None
    warning: str = ""


class Answer(Struct, frozen=True):
    """An answer as the rest of the run reads it."""

    markers: list[str]
    context: str
    output: Any
    exports: dict[str, str]
    warnings: tuple[str, ...] = ()

    def result(self) -> dict[str, Any]:
        return {"markers": self.markers, "context": self.context, "output": self.output, "exports": self.exports}


def read_block(text: str) -> Block:
    """Find the last block of a text."""
    openings = list(OPENING.finditer(text))
    if not openings:
        return Block(None)
    opening = openings[-1]
    closing = CLOSING.search(text, opening.end())
    if closing is None:
        return Block(None, f"the output block has no end: `{opening[0].replace('<<<', '<<<END_')}` is missing")
    try:
        value = json.loads(_repaired(text[opening.end() : closing.start()]), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        return Block(None, f"the output block is not JSON: {error}")
    if not isinstance(value, dict):
        return Block(None, "the output block is not a JSON object")
    return Block(value)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def _repaired(text: str) -> str:
    """Remove a code fence and commas at the end of lists and maps, and double backslashes that escape nothing."""
    text = text.strip()
    fence = FENCE.match(text)
    if fence is not None:
        text = text[fence.end() :].rstrip().removesuffix(fence[1])
    return _REPAIRED.sub(lambda found: _escaped(found[0]) if found[0] != "," else "", text)


def _escaped(text: str) -> str:
    return _BACKSLASH.sub(lambda found: found[0] if found[1] in ESCAPES else f"\\\\{found[1]}", text)


def read_answer(
    answer: Any, rules: Rules | None = None, reserved: Collection[str] = (), script: bool = False
) -> Answer:
    """Read an answer: a text with a block, or a map, which is the block. Raises Unfit if it does not fit its schema."""
    text = answer if isinstance(answer, str) else ""
    block = Block(answer) if isinstance(answer, dict) else read_block(text)
    warnings = [block.warning] if block.warning else []
    value = block.value
    if rules is not None and value is None:
        raise Unfit(block.warning or "the answer has no output block")
    if value is None:
        return Answer([], text[:SHORT] if script else "", None, {}, tuple(warnings))
    exports = {name: each for name, each in value.items() if name not in OWN and isinstance(each, str)}
    for name in sorted(exports.keys() & frozenset(reserved)):
        del exports[name]
        warnings.append(f"the output block may not set `{name}`, which is a variable of the project or of the engine")
    if rules is not None:
        problems = list(_problems(rules["fields"], value, ""))
        if problems:
            more = f"; and {len(problems) - MOST_PROBLEMS} more" if len(problems) > MOST_PROBLEMS else ""
            raise Unfit("the output does not fit its schema: " + "; ".join(problems[:MOST_PROBLEMS]) + more)
        return Answer(markers_of(rules, value), context_of(rules, value), value, exports, tuple(warnings))
    markers, context = value.get("markers"), value.get("context")
    texts = [each for each in markers if isinstance(each, str)] if isinstance(markers, list) else []
    return Answer(texts, context if isinstance(context, str) else "", value, exports, tuple(warnings))


def _problems(fields: Mapping[str, Any], value: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, field in fields.items():
        where = f"{path}.{name}" if path else name
        if name in value:
            yield from _misfits(field, value[name], where)
        elif not field.get("optional"):
            yield f"`{where}` is missing"


def _misfits(field: Mapping[str, Any], value: Any, where: str) -> Iterator[str]:
    kind = field["type"]
    if not _FITS[kind](value):
        yield f"`{where}` must be {_WORDS[kind]}, not {json.dumps(value)[:60]}"
    elif kind == "enum" and value not in field["values"]:
        yield f"`{where}` must be one of {', '.join(field['values'])}, not {json.dumps(value)[:60]}"
    elif kind == "array" and "items" in field:
        for number, item in enumerate(value):
            yield from _misfits(field["items"], item, f"{where}[{number}]")
    elif kind == "object":
        yield from _problems(field.get("fields", {}), value, where)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "enum": lambda value: isinstance(value, str),
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
_WORDS = {
    "string": "a text",
    "enum": "a text",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a map",
}


def markers_of(rules: Rules, value: Mapping[str, Any]) -> list[str]:
    """Return the markers that follow from an output: those of the schema, or those that every schema has."""
    if rules.get("markers") is not None:
        return sorted(name for name, rule in rules["markers"].items() if _holds(rule, value))
    findings = value.get("findings")
    findings = findings if isinstance(findings, list) else []
    found = {"not_approved"} if value.get("approved") is False else set()
    found |= {"has_findings"} if findings else set()
    severities = {each.get("severity") for each in findings if isinstance(each, dict) and _is_text(each, "severity")}
    return sorted(found | {f"has_{each}_findings" for each in SEVERITIES if each in severities})


def _is_text(value: Mapping[str, Any], name: str) -> bool:
    return isinstance(value.get(name), str)


def _holds(rule: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    field, wanted, op = value.get(rule["field"]), rule["value"], rule["op"]
    if rule["field"] not in value:
        return False
    if rule.get("where"):
        name, text = rule["where"]
        if not isinstance(field, list):
            return False
        field = [each for each in field if isinstance(each, dict) and name in each and _shown(each[name]) == text]
    if rule.get("length"):
        return isinstance(field, list | str) and _COMPARES[op](len(field), wanted)
    if op in ("==", "!="):
        return _equals(field, wanted) == bool(op == "==")
    return _is_number(field) and _COMPARES[op](field, wanted)


def _equals(field: Any, wanted: Any) -> bool:
    if isinstance(wanted, bool) or isinstance(field, bool):
        return _shown(field) == _shown(wanted)
    if _is_number(wanted) and _is_number(field):
        return bool(field == wanted)
    return _shown(field) == _shown(wanted)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


_COMPARES: Mapping[str, Callable[[Any, Any], bool]] = {
    ">": lambda one, other: one > other,
    "<": lambda one, other: one < other,
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    ">=": lambda one, other: one >= other,
    "<=": lambda one, other: one <= other,
}


def context_of(rules: Rules, value: Mapping[str, Any]) -> str:
    """Return the context of an output: its `context`, its `summary`, or the first field that is declared as text."""
    texts = sorted(name for name, field in rules["fields"].items() if field["type"] == "string")
    return next((value[name] for name in ("context", "summary", *texts) if isinstance(value.get(name), str)), "")


def json_schema(rules: Rules) -> dict[str, Any]:
    """Return a schema as JSON Schema, for whoever answers."""
    return _object_schema(rules["fields"])


def _object_schema(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: _field_schema(field) for name, field in fields.items()},
        "required": [name for name, field in fields.items() if not field.get("optional")],
    }


def _field_schema(field: Mapping[str, Any]) -> dict[str, Any]:
    kind = field["type"]
    about: dict[str, Any] = {"description": field["desc"]} if "desc" in field else {}
    examples = _examples(field)
    about |= {"examples": examples} if examples else {}
    if kind == "enum":
        return {"type": "string", "enum": list(field["values"]), **about}
    if kind == "object":
        return {**_object_schema(field.get("fields", {})), **about}
    if kind == "array":
        return {"type": "array", **({"items": _field_schema(field["items"])} if "items" in field else {}), **about}
    return {"type": kind, **about}


def _examples(field: Mapping[str, Any]) -> list[Any]:
    """Return examples of the whole value; those of a list may be written as examples of its elements."""
    written = field.get("examples", [])
    whole = [each for each in written if not list(_misfits(field, each, ""))]
    return [written] if written and not whole and not list(_misfits(field, written, "")) else whole


PLAIN_FORM = """\
When you are done, end your answer with one block between these marks. `markers` are words that say how it went, and
`context` is a short summary for the next step:

<<<FLOW_OUTPUT>>>
{"markers": [], "context": "…"}
<<<END_FLOW_OUTPUT>>>"""


def answer_form(rules: Rules | None) -> str:
    """Return the part of a prompt that says what the answer must look like."""
    if rules is None:
        return PLAIN_FORM
    lines = ["When you are done, end your answer with one block of JSON between these marks:", "", "<<<FLOW_OUTPUT>>>"]
    lines += _lines(rules["fields"], "")
    lines += ["<<<END_FLOW_OUTPUT>>>"]
    return "\n".join(lines)


def _lines(fields: Mapping[str, Any], margin: str) -> Iterator[str]:
    yield f"{margin}{{"
    for name, field in fields.items():
        about = " ".join(_about(field))
        yield f"{margin}  {json.dumps(name)}: {_form_of(field)}" + (f"  // {about}" if about else "")
    yield f"{margin}}}"


def _about(field: Mapping[str, Any]) -> Iterator[str]:
    if field.get("optional"):
        yield "(may be left out)"
    if "desc" in field:
        yield str(field["desc"])
    if field.get("examples"):
        yield "for example " + ", ".join(json.dumps(each, ensure_ascii=False) for each in field["examples"])


def _form_of(field: Mapping[str, Any]) -> str:
    match field["type"]:
        case "enum":
            return " | ".join(json.dumps(each) for each in field["values"])
        case "array":
            return f"[{_form_of(field['items'])}, …]" if "items" in field else "[…]"
        case "object":
            parts = [
                f"{json.dumps(name)}: {_form_of(each)}" + (" (may be left out)" if each.get("optional") else "")
                for name, each in field.get("fields", {}).items()
            ]
            return "{" + ", ".join(parts) + "}"
        case kind:
            return f"<{kind}>"
