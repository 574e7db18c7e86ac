"""Thousands of templates at random: none escapes, none changes anything, none takes long or much."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from refold.core.codec import check_value
from refold.core.expressions import CannotEvaluate
from refold.templates import Templates, paths_of, problem_of
from tests.templates.measuring import MOST_BYTES, MOST_SECONDS, measured
from tests.templates.views import CHAINABLE, STRICT, digest, world
from tests.templates.writer import Writer

ROOT = Path(__file__).parents[2]
FIRST_SEED = int(os.environ.get("REFOLD_FIRST_SEED", "0"))
ONE_BY_ONE = 500  # templates between two looks at the state


def evaluate(templates: Templates, text: str, view: dict[str, Any], seen: Counter[str]) -> None:
    """The value is plain data, or it is said why there is none."""
    problem = problem_of(text, "strict" if templates is STRICT else "chainable")
    try:
        value = templates.value(text, view)
    except CannotEvaluate as error:
        assert str(error)
        assert " at 0x" not in str(error)
        seen["broken" if problem else "no value"] += 1
        return
    assert problem is None
    check_value(value)
    assert is_data(value)
    assert len(json.encode(value)) < 8 << 20
    seen["value"] += 1


def is_data(value: Any) -> bool:
    if type(value) is dict:
        return all(type(key) is str and is_data(each) for key, each in value.items())
    if type(value) is list:
        return all(map(is_data, value))
    return value is None or type(value) in (str, int, float, bool)


def walk_many(first: int, count: int) -> Counter[str]:
    """Texts with statements, in the dialect that has them."""
    view = world() | {"large": "z" * 50_000}
    before = digest(view)
    seen: Counter[str] = Counter()
    slowest, largest = (0.0, ""), (0, "")
    for seed in range(first, first + count):
        text = Writer(f"statements {seed}").text_with_statements()
        paths_of(text)
        taken = measured(lambda text=text: evaluate(CHAINABLE, text, view, seen))  # type: ignore[misc]
        assert taken.is_little(), (seed, text, taken)
        slowest, largest = max(slowest, (taken.seconds, text)), max(largest, (taken.bytes, text))
        assert seed % ONE_BY_ONE or digest(view) == before, (seed, text)
    assert digest(view) == before
    print(f"{count} texts with statements from seed {first}: {dict(seen)}")
    print(f"slowest {slowest[0]:.3f} of {MOST_SECONDS} s: {slowest[1][:100]}")
    print(f"largest {largest[0] >> 20} of {MOST_BYTES >> 20} MiB: {largest[1][:100]}")
    return seen


def evaluate_many(first: int, count: int) -> Counter[str]:
    """Also tells what took most; the same seeds give the same templates."""
    view = world() | {"large": "z" * 50_000}
    before = digest(view)
    seen: Counter[str] = Counter()
    slowest, largest = (0.0, ""), (0, "")
    for seed in range(first, first + count):
        text = Writer(str(seed)).template()
        paths_of(text)
        for templates in (STRICT, CHAINABLE):
            taken = measured(lambda templates=templates, text=text: evaluate(templates, text, view, seen))  # type: ignore[misc]
            assert taken.is_little(), (seed, text, taken)
            slowest, largest = max(slowest, (taken.seconds, text)), max(largest, (taken.bytes, text))
        assert seed % ONE_BY_ONE or digest(view) == before, (seed, text)
    assert digest(view) == before
    print(f"{count} templates from seed {first}: {dict(seen)}")
    print(f"slowest {slowest[0]:.3f} of {MOST_SECONDS} s: {slowest[1][:100]}")
    print(f"largest {largest[0] >> 20} of {MOST_BYTES >> 20} MiB: {largest[1][:100]}")
    return seen


def test_a_few_thousand_templates_keep_every_promise() -> None:
    seen = evaluate_many(FIRST_SEED, 3000)
    assert min(seen["value"], seen["no value"], seen["broken"]) > 300  # the grammar tries all of them


def test_some_hundred_texts_with_statements_keep_every_promise() -> None:
    seen = walk_many(FIRST_SEED, 600)
    assert min(seen["value"], seen["no value"], seen["broken"]) > 20


@pytest.mark.proof
def test_twenty_thousand_texts_with_statements_in_a_process_that_may_die() -> None:
    code = f"from tests.templates.test_generated import walk_many; walk_many({FIRST_SEED}, 20_000)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.proof
def test_fifty_thousand_templates_in_a_process_that_may_die() -> None:
    code = f"from tests.templates.test_generated import evaluate_many; evaluate_many({FIRST_SEED}, 50_000)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
