"""Tasks of NoETL files that start another playbook: where the file is, and which result is returned."""

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from refold.core.expressions import CannotEvaluate
from refold.core.pipeline import Started
from refold.core.plan import Plan, plan_hash
from refold.names import did_you_mean
from refold.playbooks.children import SUFFIXES, ChildReader
from refold.playbooks.noetl.keys import OWN
from refold.playbooks.reader.reading import Reading, cut
from refold.playbooks.reader.templates import is_template
from refold.playbooks.yaml.text import Node
from refold.templates import Templates, paths_of

SEEN_FROM = "a path is relative to the folder of this file, or one of the catalog in which this file has its own"
HINTS = ("version", "poll_interval")
KNOWN = ("path", "catalog_id", "payload", "return_step", "return_result", "result_step", *HINTS)


def read_started(reading: Reading, node: Node, about: Mapping[str, Any], workload: Mapping[str, Any]) -> Started:
    """The task waits for the child if a result is wanted; otherwise it only starts the child."""
    for name in node.nodes:
        if name in HINTS:
            reading.warn_key(node, name, "no-effect", f"`{name}` has no effect here", "leave it out")
        elif name not in KNOWN and name not in OWN:
            message = f"the tool `playbook` has no key `{cut(name)}`; it has no effect"
            reading.warn_key(node, name, "unknown-key", message, did_you_mean(name, KNOWN))
    path = _written_out(reading, node.nodes.get("path"), workload)
    if path is None or not isinstance(path.value, str) or is_template(path.value):
        _no_path(reading, node, path)
        return Started(plan="")
    found = _found(reading, path, about)
    if found is None:
        return Started(plan="")
    plan, itself = found
    waits = any(node.value.get(name) not in (None, False) for name in ("return_step", "return_result", "result_step"))
    return Started(
        plan="" if itself else plan_hash(plan),
        path=path.value,
        want=_wanted(reading, node, plan),
        detached=not waits,
    )


def _written_out(reading: Reading, path: Node | None, workload: Mapping[str, Any]) -> Node | None:
    """Replace a path that names a default of the workload by that default: there are no inputs yet."""
    named = paths_of(path.value) if path is not None and is_template(path.value) else ()
    if path is None or not named or any(each[0] != "workload" and each[0] not in workload for each in named):
        return path
    try:
        found = Templates("chainable").value(path.value, {**workload, "workload": workload})
    except CannotEvaluate:
        return path
    if not isinstance(found, str) or not found or is_template(found):
        return path
    message = f"the playbook is `{cut(found)}`, as the workload says, whatever inputs a run is given"
    reading.warn(path, "fixed-path", message, f"write `path: {cut(found)}`")
    return Node(found, path.start, path.end, path.style, path.nodes, path.keys)


def _no_path(reading: Reading, node: Node, path: Node | None) -> None:
    if path is None:
        hint = "write `path: …`, relative to this file" if "catalog_id" in node.nodes else "write `path: …`"
        reading.at(node, "missing-key", "the tool `playbook` needs the key `path`", hint)
    else:
        hint = "write the path out; to choose between playbooks, make a step for each"
        reading.at(path, "unsupported", "the path of a playbook cannot be computed: it is read before the run", hint)


def _found(reading: Reading, path: Node, about: Mapping[str, Any]) -> tuple[Plan, bool] | None:
    child_reader: ChildReader[Any] = reading.child_reader
    own = about.get("path")
    if path.value == own:
        return Plan(name="", steps=()), True
    files = list(_files(path.value, own))
    file = next((each for each in files if child_reader.is_readable(each)), files[0])
    if child_reader.is_itself(file):
        return Plan(name="", steps=()), True
    found = child_reader.child(reading, path, file, SEEN_FROM)
    return None if found is None else (found[1], False)


def _files(path: str, own: Any) -> Iterator[str]:
    """The path relative to this file; then relative to the catalog path that this file has, whose first folders need
    not exist. A playbook may also have a folder of its own, as in `copy/copy.yaml` for the path `copy`."""
    last = path.rsplit("/", 1)[-1]
    if path.endswith(SUFFIXES):
        names, alone = [path], [last]
    else:
        names = [path + suffix for suffix in SUFFIXES] + [path] + [f"{path}/{last}{suffix}" for suffix in SUFFIXES]
        alone = [last + suffix for suffix in SUFFIXES] + [last] + [f"{last}/{last}{suffix}" for suffix in SUFFIXES]
    yield from names
    if isinstance(own, str) and "/" in own:
        up = "../" * own.strip("/").count("/")
        yield from (f"{above}{name}" for above in (up, f"{up}../") for name in names)
        near = [posixpath.relpath(f"/{name}", posixpath.dirname(f"/{own.strip('/')}")) for name in names]
        yield from (f"{above}{name}" for above in ("", "../") for name in near)
    yield from alone
    yield from (f"../{name}" for name in alone)


def _wanted(reading: Reading, node: Node, plan: Plan) -> str:
    """The step of the child whose data is wanted."""
    steps = [step.name for step in plan.steps]
    result = node.nodes.get("result_step")
    if result is not None and isinstance(result.value, str):
        if steps and result.value not in steps:
            message = f"the child has no step `{cut(result.value)}`"
            reading.at(result, "unknown-step", message, did_you_mean(result.value, steps))
        return result.value
    returned = node.value.get("return_step")
    return returned if isinstance(returned, str) and returned in steps else ""
