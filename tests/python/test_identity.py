"""Which code a run executes: workflows are known by their module and name, and by the arguments of their instances."""

import asyncio
import gzip
import importlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import refold
from refold import Context, Engine, Event, StartEvent, StopEvent, Workflow, open_engine, step
from refold.core.plan import read_plan
from refold.errors import CannotMigrate, InvalidPlan, NameTaken
from refold.python.definition import define
from refold.wiring import open_process
from tests.python import former_flows
from tests.python.house import SHORT

OLD_FILE = Path(__file__).with_name("former_flows.db.gz")
AN_ORDER, SORTING = "0" * 31 + "1", "0" * 31 + "2"


class Greet(Workflow[str]):
    def __init__(self, word: str, mark: str = "!") -> None:
        super().__init__()
        self.word, self.mark = word, mark

    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if "waits" in ev:
            await ctx.wait_for("go")
        return StopEvent(result=f"{self.word}, {ev.who}{self.mark}")


class Client:
    def __init__(self, name: str) -> None:
        self.name = name


class Pay(Workflow[str]):
    def __init__(self, client: Client, name: str = "") -> None:
        super().__init__(name)
        self.client = client

    @step
    async def go(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=self.client.name)


@refold.flow
async def greets_twice(ctx: Context) -> list[str]:
    return [await ctx.run_child(Greet("Hello"), who="Ada"), await ctx.run_child(Greet("Adieu"), who="Ada")]


@pytest.fixture
def modules(tmp_path: Path) -> Iterator[Callable[[str, str], ModuleType]]:
    """Writes and imports modules, and forgets them after the test."""
    folder, made = tmp_path / "modules", list[str]()
    folder.mkdir()
    sys.path.insert(0, str(folder))

    def module(name: str, text: str) -> ModuleType:
        (folder / f"{name}.py").write_text(text)
        made.append(name)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield module
    sys.path.remove(str(folder))
    for name in made:
        del sys.modules[name]


def daily(result: str, more: str = "") -> str:
    return f"import refold\n\n@refold.flow\nasync def daily(ctx, day):\n    {more or 'pass'}\n    return {result!r}\n"


async def suspended(engine: Engine, run: str) -> None:
    async with asyncio.timeout(60):
        while not any(each.held for each in (await engine.show(run)).state.open.values()):
            await asyncio.sleep(0.01)


# Two instances, two modules, two local classes


async def test_two_instances_with_different_arguments_run_their_own_bodies() -> None:
    async with open_engine(settings=SHORT) as engine:
        assert await engine.run(Greet("Hello"), who="Ada") == "Hello, Ada!"
        assert await engine.run(Greet("Adieu"), who="Ada") == "Adieu, Ada!"
        assert await engine.run(Greet("Hello"), who="Bob") == "Hello, Bob!"


def test_two_instances_with_equal_arguments_are_the_same_workflow() -> None:
    first = define(Greet("Hello"))
    assert define(Greet(word="Hello", mark="!")).hash == first.hash
    assert define(Greet("Hello", "?")).hash != first.hash
    assert first.plan.code is not None
    assert first.plan.code.arguments == {"word": "Hello", "mark": "!"}
    assert first.plan.code.name == f"{__name__}:Greet"


async def test_two_modules_with_a_flow_of_one_name_run_their_own_bodies(modules: Any) -> None:
    billing, cleanup = modules("billing", daily("BILLED")), modules("cleanup", daily("cleaned"))
    async with open_engine(settings=SHORT) as engine:
        assert await engine.run(billing.daily, day="mon") == "BILLED"
        assert await engine.run(cleanup.daily, day="mon") == "cleaned"


def greeting(word: str) -> type[Workflow[str]]:
    class Local(Workflow[str]):
        @step
        async def go(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=word)

    return Local


async def test_two_local_classes_of_one_name_are_refused_unless_they_are_alike() -> None:
    async with open_engine(settings=SHORT) as engine:
        assert await engine.run(greeting("Hello")) == "Hello"
        assert await engine.run(greeting("Hello")) == "Hello"
        with pytest.raises(NameTaken, match=r"greeting\.<locals>\.Local.*test_identity\.py:\d+.*`name`"):
            await engine.run(greeting("Adieu"))


async def test_two_local_functions_that_count_by_themselves_are_not_taken_for_one() -> None:
    def counting() -> Any:
        count = 0

        @refold.flow
        async def counts(ctx: Context) -> int:
            nonlocal count
            count += 1
            return count

        return counts

    async with open_engine(settings=SHORT) as engine:
        first, second = counting(), counting()
        await engine.register(first)
        with pytest.raises(NameTaken):
            await engine.run(second)
        assert await engine.run(first) == 1


async def test_a_name_that_two_workflows_give_themselves_is_taken(modules: Any) -> None:
    text = daily("BILLED").replace("@refold.flow", "@refold.flow(name='the day')")
    billing, cleanup = modules("billing", text), modules("cleanup", text.replace("BILLED", "cleaned"))
    async with open_engine(settings=SHORT) as engine:
        assert await engine.run(billing.daily, day="mon") == "BILLED"
        with pytest.raises(NameTaken, match=r"'the day': billing:daily \(.*billing.py:3\) and cleanup:daily") as caught:
            await engine.run(cleanup.daily, day="mon")
    assert [each.split()[0] for each in caught.value.places] == ["billing:daily", "cleanup:daily"]


async def test_an_instance_whose_arguments_are_not_plain_data_needs_a_name() -> None:
    stripe, paypal = Client("stripe"), Client("paypal")
    async with open_engine(settings=SHORT) as engine:
        assert await engine.run(Pay(stripe)) == "stripe"
        assert await engine.run(Pay(stripe)) == "stripe"
        with pytest.raises(NameTaken, match=r"two of .*:Pay .* not plain data, so give each instance a `name`"):
            await engine.run(Pay(paypal))
        assert await engine.run(Pay(paypal, name="pay by paypal")) == "paypal"


# Code that is defined again


async def test_an_edited_cell_of_a_notebook_replaces_what_it_defined(caplog: pytest.LogCaptureFixture) -> None:
    notebook = ModuleType("notebook")
    sys.modules["notebook"] = notebook
    cell = "import refold\n\n@refold.flow\nasync def add(ctx, x):\n    return x + {}\n"
    try:
        async with open_engine(settings=SHORT) as engine:
            exec(compile(cell.format(1), "<cell 1>", "exec"), vars(notebook))
            old = notebook.add
            assert await engine.run(notebook.add, x=1) == 2
            exec(compile(cell.format(100), "<cell 2>", "exec"), vars(notebook))
            with caplog.at_level(logging.INFO, "refold"):
                assert await engine.run(notebook.add, x=1) == 101
            assert "workflow was defined again" in caplog.text
            with pytest.raises(NameTaken, match="was replaced by the first"):
                await engine.run(old, x=1)
    finally:
        del sys.modules["notebook"]


async def test_a_run_that_waits_continues_with_the_code_of_a_reloaded_module(modules: Any, tmp_path: Path) -> None:
    billing = modules("billing", daily("old", "await ctx.wait_for('go')"))
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(billing.daily, day="mon")
        await suspended(engine, handle.id)
        (tmp_path / "modules" / "billing.py").write_text(daily("reloaded", "await ctx.wait_for('go')"))
        await engine.register(importlib.reload(billing).daily)
        await engine.signal(handle.id, "go")
        assert await asyncio.wait_for(handle.result(), 60) in ("old", "reloaded")
        second = await engine.start(billing.daily, day="tue")
        await engine.signal(second.id, "go")
        assert await asyncio.wait_for(second.result(), 60) == "reloaded"


# Several processes


SERVE = """
import asyncio, sys, refold
from importlib import import_module

async def main(db, target):
    module, name = target.split(":")
    async with refold.open_engine(db=db) as engine:
        await engine.register(getattr(import_module(module), name))
        print("serving", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main(*sys.argv[1:]))
"""


class Served:
    """Another process that has the code of one workflow."""

    def __init__(self, folder: Path, db: Path, target: str) -> None:
        path = os.pathsep.join([str(folder), os.getcwd()])
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(db), target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    def __enter__(self) -> "Served":
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "serving\n"
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(60) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()


async def test_a_worker_of_another_module_never_runs_a_workflow_of_the_same_name(modules: Any, tmp_path: Path) -> None:
    modules("billing", daily("BILLED"))
    cleanup, db = modules("cleanup", daily("cleaned")), tmp_path / "refold.db"
    with Served(tmp_path / "modules", db, "billing:daily"):
        async with open_process(db=db, settings=SHORT, only="nothing") as process:  # it stores, and runs nothing
            process.engine.code.adopted.clear()  # type: ignore[attr-defined]
            handle = await process.engine.start(cleanup.daily, day="mon")
        async with open_engine(db=db, settings=SHORT) as engine:
            shown = await engine.show(handle.id)
            assert shown.status == "running"
            assert "no live worker has the code" in str(shown.waits)
            assert "migrate" not in str(shown.waits), "billing:daily is another workflow"
            assert await (await engine.attach(handle.id, cleanup.daily)).result() == "cleaned"


async def test_another_process_builds_an_instance_again_from_its_stored_arguments(tmp_path: Path) -> None:
    db = tmp_path / "refold.db"
    async with open_engine(db=db, settings=SHORT) as engine:
        left = await engine.start(Greet("Hello"), who="Ada", waits=True)
        await suspended(engine, left.id)
    with Served(tmp_path, db, f"{__name__}:Greet"):
        async with open_process(db=db, settings=SHORT, only="nothing") as process:
            later = await process.engine.start(Greet("Adieu", "?"), who="Bob")
            await process.engine.signal(left.id, "go")
            assert (await asyncio.wait_for(process.engine.wait(left.id), 60)).result == "Hello, Ada!"
            assert (await asyncio.wait_for(process.engine.wait(later.id), 60)).result == "Adieu, Bob?"


async def test_a_class_is_enough_to_attach_to_a_run_of_an_instance(tmp_path: Path) -> None:
    db = tmp_path / "refold.db"
    async with open_engine(db=db, settings=SHORT) as engine:
        left = await engine.start(Greet("Hello"), who="Ada", waits=True)
        await suspended(engine, left.id)
    async with open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.attach(left.id, Greet)
        await engine.signal(left.id, "go")
        assert await asyncio.wait_for(handle.result(), 60) == "Hello, Ada!"


# Classes that need arguments


async def test_a_class_that_a_body_names_is_not_instantiated_if_it_needs_arguments() -> None:
    async with open_engine(settings=SHORT) as engine:
        assert await engine.run(greets_twice) == ["Hello, Ada!", "Adieu, Ada!"]


async def test_a_class_that_needs_arguments_is_not_started_without_them() -> None:
    async with open_engine(settings=SHORT) as engine:
        with pytest.raises(
            InvalidPlan, match=r"Greet needs arguments \(word\): give an instance, as in `Greet\(word=…"
        ):
            await engine.start(Greet, who="Ada")


# Steps and attributes that are called like an option


@pytest.mark.parametrize("name", ["retry", "timeout", "name", "types", "children", "on_failure", "hands_on", "live"])
def test_a_step_that_is_called_like_an_option_is_refused_by_name(name: str) -> None:
    async def body(self: Any, ev: StartEvent) -> StopEvent: ...  # type: ignore[empty-body]

    workflow = type("Own", (Workflow,), {name: step(body)})
    with pytest.raises(InvalidPlan, match=f"a step of Own is called '{name}', which is an option of Workflow"):
        define(workflow)


def test_an_attribute_that_is_called_like_an_option_is_refused_by_name() -> None:
    class Own(Workflow[Any]):
        def __init__(self) -> None:
            super().__init__()
            self.children = ["Ann", "Bob"]

        @step
        async def go(self, ev: StartEvent) -> StopEvent: ...  # type: ignore[empty-body]

    with pytest.raises(InvalidPlan, match=r"Own\.children is \['Ann', 'Bob'\].*needs another name"):
        define(Own)


# The hash


def test_the_name_of_a_script_is_the_one_that_refold_run_would_use(tmp_path: Path) -> None:
    text = daily("x") + "\nfrom refold.python.definition import define\nprint(define(daily).plan.code.name)\n"
    (tmp_path / "job.py").write_text(text)
    for arguments, name in ((["job.py"], "job:daily"), (["-m", "job"], "job:daily"), (["-c", text], "__main__:daily")):
        shown = subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert shown.stdout.strip() == name


def test_the_fields_of_events_are_part_of_the_hash() -> None:
    def made(fields: dict[str, type], **defaults: Any) -> str:
        item = type("Item", (Event,), {"__annotations__": fields, "__module__": __name__, **defaults})

        async def begin(ev: StartEvent) -> Any: ...
        async def end(ev: Any) -> StopEvent: ...  # type: ignore[empty-body]

        begin.__annotations__["return"] = end.__annotations__["ev"] = item
        return define(Workflow("w", [begin, end])).hash

    first = made({"a": int})
    assert made({"a": int}) == first
    assert len({first, made({"b": int}), made({"a": int, "b": int}), made({"a": int}, a=1)}) == 4


def test_an_older_plan_is_decoded_and_keeps_its_hash() -> None:
    former = define(former_flows.order).former
    assert former.hash == "28b3bcc155aaefff623c9d9343c15af7575d57bb08bf6acdfee4a616997cdce1"
    assert define(former_flows.Sorted).former.hash.startswith("b139ded4546128c7")
    from refold.core.plan import canonical

    assert read_plan(canonical(former.plan)).code is None


ITEMS = """
from refold import Context, Event, StartEvent, StopEvent, Workflow, step

class Item(Event):
    {fields}

class Count(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> Item:
        return Item({values})

    @step
    async def end(self, ctx: Context, ev: Item) -> StopEvent:
        await ctx.wait_for("go")
        return StopEvent(result=vars(ev))
"""


async def left_in_the_middle(db: Path, workflow: Any) -> str:
    async with open_engine(db=db, settings=SHORT) as engine:
        run = (await engine.start(workflow)).id
        while "end/1" not in (await engine.show(run)).state.open:
            await asyncio.sleep(0.01)
        await suspended(engine, run)
    return str(run)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ("a: int; b: int", "Item would need b, which it does not have: give a default"),
        ("b: int = 0", "Item would lose a: keep the field until no run needs it"),
    ],
)
async def test_a_run_whose_events_do_not_fit_the_new_code_waits_and_is_not_migrated(
    fields: str, why: str, modules: Any, tmp_path: Path
) -> None:
    db = tmp_path / "refold.db"
    old = modules("items", ITEMS.format(fields="a: int", values="a=1"))
    run = await left_in_the_middle(db, old.Count)
    (tmp_path / "modules" / "items.py").write_text(ITEMS.format(fields=fields, values=""))
    new = importlib.reload(old)
    async with open_engine(db=db, settings=SHORT) as engine:
        hash = await engine.register(new.Count)
        await engine.signal(run, "go")
        assert "no live worker has the code" in str((await engine.show(run)).waits)
        with pytest.raises(CannotMigrate, match=why):
            await engine.migrate(run, hash)


async def test_a_field_with_a_default_is_added_by_a_migration(modules: Any, tmp_path: Path) -> None:
    db = tmp_path / "refold.db"
    old = modules("items", ITEMS.format(fields="a: int", values="a=1"))
    run = await left_in_the_middle(db, old.Count)
    (tmp_path / "modules" / "items.py").write_text(ITEMS.format(fields="a: int; b: int = 7", values="a=1"))
    new = importlib.reload(old)
    async with open_engine(db=db, settings=SHORT) as engine:
        await engine.migrate(run, await engine.register(new.Count))
        await engine.signal(run, "go")
        handle = await engine.attach(run, new.Count)
        assert await asyncio.wait_for(handle.result(), 60) == {"a": 1, "b": 7}


# Runs that were hashed by the former rule


@pytest.fixture
def old_file(tmp_path: Path) -> Path:
    """A database in which two runs were left by a Refold that hashed names and shapes alone."""
    former_flows.made.clear()
    db = tmp_path / "old.db"
    db.write_bytes(gzip.decompress(OLD_FILE.read_bytes()))
    return db


async def test_older_runs_are_served_and_find_their_recorded_calls(old_file: Path) -> None:
    async with open_engine(db=old_file, settings=SHORT) as engine:
        order = await engine.attach(AN_ORDER, former_flows.order)
        await engine.signal(AN_ORDER, "paid", 25)
        assert await asyncio.wait_for(order.result(), 60) == "receipt 25, 2 and 5 parts, paid 25"
        assert former_flows.made == ["shipped"], "what was recorded is not done again"
        former_flows.made.clear()
        sorting = await engine.attach(SORTING, former_flows.Sorted)
        for _ in range(2):
            await engine.signal(SORTING, "go")
        assert await asyncio.wait_for(sorting.result(), 60) == "item 2 was last"
        assert former_flows.made == ["item 1", "item 2"]


async def test_older_runs_wait_if_several_workflows_have_their_hash(old_file: Path, modules: Any) -> None:
    text = "import refold\n\n@refold.flow\nasync def order(ctx, amount):\n    return 'another order'\n"
    another = modules("another", text)
    assert define(another.order).former.hash == define(former_flows.order).former.hash
    async with open_engine(db=old_file, settings=SHORT) as engine:
        await engine.register(former_flows.order)
        await engine.register(another.order)
        await engine.signal(AN_ORDER, "paid", 25)
        waits = str((await engine.show(AN_ORDER)).waits)
        assert "no live worker has the code of plan 28b3bcc155aa (order)" in waits
        assert "another:order" in waits
        assert "refold runs migrate an-order --to" in waits
        hash = await engine.register(former_flows.order)
        await engine.migrate(AN_ORDER, hash)
        assert (await asyncio.wait_for(engine.wait(AN_ORDER), 60)).result.startswith("receipt 25")
