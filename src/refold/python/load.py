"""Finds Python workflows by their names, `module:Class`, and describes them to the playbooks that start them."""

import os
import sys
from importlib import import_module
from inspect import isfunction
from traceback import extract_tb
from typing import Any

from refold.core.plan import START, Input
from refold.errors import InvalidValue, NotFound, RefoldError
from refold.executors.functions import imported
from refold.names import a, did_you_mean
from refold.playbooks.python_workflows import PythonWorkflow
from refold.python.definition import Definition, define, is_workflow, with_children
from refold.python.field_types import check, declared, needed
from refold.python.workflow import FLOW


def load(target: str) -> Any:
    """Import a workflow by name. Raises NotFound or InvalidValue, or what the module itself raises."""
    where, _, path = target.partition(":")
    folder, _, module = where.rpartition("/")
    for each in dict.fromkeys([os.getcwd(), os.path.abspath(folder)]):
        if each not in sys.path:
            sys.path.insert(0, each)
    found: Any = imported(module)
    if found is None:
        here = f"in {folder}, here" if folder else "here"
        hint = f"; a module is named without .py: {where[:-3]}:{path}" if module.endswith(".py") else ""
        raise NotFound(f"there is no module {module!r} {here} or among the installed ones{hint}")
    _check_home(os.path.abspath(folder), module)
    for part in path.split("."):
        if not hasattr(found, part):
            known = [name for name, each in vars(found).items() if is_workflow(each)]
            raise NotFound(f"module {module!r} has no {path!r}: {did_you_mean(part, known)}")
        found = getattr(found, part)
    if not is_workflow(found):
        hint = "; `@refold.flow` makes a workflow of it" if isfunction(found) else ""
        raise InvalidValue(target, f"is {a(type(found).__name__)} and no workflow{hint}")
    return found


def describe_workflow(target: str) -> PythonWorkflow:
    """Import a workflow and describe it to a playbook. Raises a RefoldError, whatever is wrong with the module."""
    try:
        return describe(define(load(target), target))
    except RefoldError:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidValue(target, f"its module cannot be imported: {_told(error)}") from error


def describe(definition: Definition) -> PythonWorkflow:
    """Return what a playbook needs to know of a workflow: its plans and its inputs; fields of a start event also have
    types.
    """
    inputs, start = definition.inputs, definition.classes[START]
    wanted = inputs.needed if _is_flow(definition) else needed(start)
    hints = declared(start)

    def misfit(name: str, value: Any) -> str:
        try:
            check(value, hints.get(name, Any), name)
        except InvalidValue as error:
            return str(error).removeprefix(f"{name}: ")
        return ""

    return PythonWorkflow(
        target=definition.home,
        plans=tuple(each.plan for each in with_children(definition)),
        inputs=tuple(Input(name=name, required=name in wanted) for name in inputs.names),
        others=inputs.others,
        misfit=misfit,
    )


def _is_flow(definition: Definition) -> bool:
    return any(hasattr(body.function, FLOW) for body in definition.bodies.values())


def _check_home(folder: str, module: str) -> None:
    """Raise InvalidValue if another module of this name is already imported than the one in the folder."""
    top = module.partition(".")[0]
    there = [os.path.join(folder, f"{top}.py"), os.path.join(folder, top, "__init__.py")]
    wanted, file = next(filter(os.path.exists, there), None), getattr(import_module(top), "__file__", None)
    if wanted is not None and file is not None and not os.path.samefile(wanted, file):
        raise InvalidValue(wanted, f"another module {top!r} is in use, that of {file}: give one of them another name")


def _told(error: BaseException) -> str:
    """Return the text of an exception, with its place in the user's code."""
    what = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return what  # it has its place
    frames = [each for each in extract_tb(error.__traceback__) if not each.filename.startswith("<frozen")]
    return f"{what} ({frames[-1].filename}:{frames[-1].lineno})" if frames else what
