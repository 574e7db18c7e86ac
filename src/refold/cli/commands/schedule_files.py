"""Files of schedules and calendars: what they start is read and stored, and a folder of them is kept in step with the
database."""

import asyncio
import os
import shlex
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from refold.cli import output as out
from refold.cli.commands.playbooks import is_code, load, read_file, read_workflow
from refold.core.facts import Planned
from refold.core.graph import prepare
from refold.core.plan import Plan
from refold.errors import Conflict, InvalidValue, RefoldError
from refold.names import did_you_mean
from refold.playbooks.problems import InvalidPlaybook, Problem
from refold.playbooks.schedule_file import CalendarFile, ScheduleFile, kind_of_file, read_schedule_file
from refold.ports import Store
from refold.runtime.children import check_inputs, known_inputs, unread_inputs
from refold.runtime.schedule_changes import pause_missing, put_calendar, sync_schedule
from refold.runtime.schedules import rendered_input
from refold.schedules.documents import Schedule, Target
from refold.wiring import Process
from refold.wiring.world import language

LOOK_AT_FOLDER = 5.0  # seconds between two looks at the folder of schedules
ENDINGS = (".yaml", ".yml")


class ReadySchedule(Struct, frozen=True):
    """A schedule that is ready to be stored, with the plans that it needs."""

    schedule: Schedule
    plans: Sequence[Plan]

    def put_plans(self, store: Store) -> None:
        for plan in self.plans:
            prepared = prepare(plan)
            store.put_plan(prepared.hash, prepared.data)


class ScheduleFolder(Struct):
    """The schedules and calendars of a folder, and what is wrong with the other files."""

    path: str
    schedules: list[ReadySchedule] = []
    calendars: list[CalendarFile] = []
    problems: list[str] = []
    broken: set[str] = set()  # files that cannot be used now: their schedules stay as they are


def wanted(
    found: ScheduleFile, by: str = "", code: Collection[str] | None = None, managed: bool = False
) -> ReadySchedule:
    """Return the schedule of a file. `code` are the Python workflows that may be imported, None: any. `managed`: the
    schedule belongs to its file from now on.

    Raises InvalidPlan, InvalidValue or NotFound.
    """
    target, plans = _target(found, code)
    schedule = Schedule(
        id=found.name,
        target=target,
        when=found.when,
        rules=found.rules,
        paused=found.paused,
        note=found.note,
        by=by,
        file=os.path.abspath(found.file) if managed else "",
    )
    return ReadySchedule(schedule, plans)


def _target(found: ScheduleFile, code: Collection[str] | None) -> tuple[Target, Sequence[Plan]]:
    is_python = is_code(found.workflow)
    if is_python and code is not None and found.workflow not in code:
        raise InvalidValue("workflow", f"its code is not imported here: give the worker `--code {found.workflow}`")
    path = found.workflow if is_python else os.path.join(os.path.dirname(found.file), found.workflow)
    playbook = read_workflow(path) if is_python else read_file(path)
    plans = [playbook.plan, *(child.plan for child in playbook.children)]
    _check_inputs(found, playbook.plan, path if is_python else "")
    prepared = prepare(playbook.plan)
    target = Target(
        workflow=found.workflow,
        plan=prepared.hash,
        name=playbook.plan.name,
        code=shlex.join([path] if is_python else playbook.code),
        is_python=is_python,
        input=found.input,
        labels={**({} if is_python else playbook.labels()), **found.labels},
        folder=os.path.abspath(os.path.dirname(found.file) or os.curdir),
    )
    return target, plans


def _check_inputs(found: ScheduleFile, plan: Plan, code: str) -> None:
    """Check the inputs of a run as they would be for some time. Raises InvalidValue."""
    sample = rendered_input(language, "refold", found.input, Planned(found.name, 0, 0))
    if code:
        from refold.python.definition import define
        from refold.python.load import load as load_workflow

        define(load_workflow(code)).begun(sample)
    else:
        for name in unread_inputs(plan, found.input):
            guess = did_you_mean(name, known_inputs(plan))
            raise InvalidValue(f"input `{name}`", f"`{plan.name}` has no such input: {guess}")
        check_inputs(plan, sample)


def read_folder(folder: str, by: str = "", code: Collection[str] | None = None) -> ScheduleFolder:
    """Read every schedule and calendar in a folder and the folders in it. Other files are left alone."""
    result = ScheduleFolder(os.path.abspath(folder), [], [], [], set())
    for file in files_in(folder):
        try:
            text = load(file)
            kind = kind_of_file(text, file)
            if kind not in ("Schedule", "Calendar"):
                continue
            found = read_schedule_file(text, file)
            if isinstance(found, CalendarFile):
                result.calendars.append(found)
            else:
                result.schedules.append(wanted(found, by, code, managed=True))
        except InvalidPlaybook as error:
            if b"kind: Schedule" in text or b"kind: Calendar" in text:
                result.problems.append(str(error))
                result.broken.add(os.path.abspath(file))
        except RefoldError as error:
            result.problems.append(f"{file}: {error}")
            result.broken.add(os.path.abspath(file))
    names: dict[str, str] = {}
    for each in list(result.schedules):
        other = names.setdefault(each.schedule.id, each.schedule.file)
        if other != each.schedule.file:
            result.problems.append(f"{each.schedule.file}: {other} has a schedule {each.schedule.id} too; rename one")
            result.schedules.remove(each)
    return result


def files_in(folder: str) -> list[str]:
    found: list[str] = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        found += [os.path.join(place, each) for each in sorted(files) if each.endswith(ENDINGS)]
    return found


def mark_of_folder(folder: str) -> tuple[Any, ...]:
    """Return something that is another when a file of the folder has changed."""
    marks: list[tuple[str, int, int]] = []
    for file in files_in(folder):
        try:
            found = os.stat(file)
        except OSError:
            continue  # it is gone meanwhile, and so it has changed
        marks.append((file, found.st_mtime_ns, found.st_size))
    return tuple(marks)


def put_folder(store: Store, found: ScheduleFolder) -> list[str]:
    """Make the schedules of the database those of the folder; return what has changed, in words. A schedule whose file
    is gone is paused, with a note."""
    said: list[str] = []
    for calendar in found.calendars:
        put_calendar(store, calendar.name, calendar.days)
    for each in found.schedules:
        each.put_plans(store)
        change = sync_schedule(store, each.schedule)
        if change:
            said.append(f"schedule {each.schedule.id}: {change} ({each.schedule.file})")
    there = {each.schedule.id for each in found.schedules}
    said += [
        f"schedule {id}: paused, because its file is gone"
        for id in pause_missing(store, there, found.path, found.broken)
    ]
    return said


async def load_folder(
    process: Process, folder: str, code: Collection[str], mark: Any, say: Callable[[str], object]
) -> Any:
    """Make the schedules of a database those of a folder, if its files are not as they were; return what they are
    marked by now. A file that cannot be used is reported, and its schedule stays as it is.

    Every process that serves a folder of playbooks calls this from time to time; `mark` is what the last call returned.
    """
    if not folder:
        return None
    now = await asyncio.to_thread(mark_of_folder, folder)
    if now == mark:
        return mark
    found = await asyncio.to_thread(read_folder, folder, "", code)
    for problem in found.problems:
        out.print_message(problem)
    try:
        changes = await process.engine.change_schedules(lambda store: put_folder(store, found))
    except Conflict:
        return mark  # another process reads the same folder; the next look compares again
    except RefoldError as error:
        out.print_message(f"the schedules of {folder} were not stored: {error}")
        return mark
    for change in changes:
        say(change)
    return now


@asynccontextmanager
async def kept_in_step(
    process: Process, folder: str, code: Collection[str], say: Callable[[str], object]
) -> AsyncIterator[None]:
    """Keep the schedules of a database those of a folder, for as long as the body of this context runs."""

    async def keep() -> None:
        mark = None
        while True:
            mark = await load_folder(process, folder, code, mark, say)
            await asyncio.sleep(LOOK_AT_FOLDER)

    task = asyncio.create_task(keep())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        error = None if task.cancelled() else task.exception()
        if error is not None:
            out.print_message(f"the schedules of {folder} were not read: {error}")


def problems_of(found: ScheduleFile) -> list[Problem]:
    """Return what is wrong with the workflow of a schedule, or with the inputs that it gets."""
    try:
        wanted(found)
    except InvalidPlaybook as error:
        count = sum(each.severity == "error" for each in error.problems)
        why = f"{error.file} has {count} error{'' if count == 1 else 's'}"
        return [Problem("bad-workflow", why, found.places["workflow"], f"`refold validate {error.file}` shows them")]
    except RefoldError as error:
        where = "input" if str(error).startswith("input") and "input" in found.places else "workflow"
        return [Problem(f"bad-{where}", str(error), found.places[where])]
    return []
