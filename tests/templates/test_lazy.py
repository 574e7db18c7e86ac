"""Only what a template names is looked up, so that its cost does not grow with the state."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from refold.core.expressions import CannotEvaluate, Missing
from refold.templates import Templates, text
from tests.templates.views import CHAINABLE, STRICT, Seen


def nested(noted: list[str]) -> Seen:
    """A view of two hundred steps, each with a result of a hundred fields."""
    results = {f"s{n}": Seen(noted, f"s{n}.", **{f"f{m}": [m] for m in range(100)}) for n in range(200)}
    return Seen(noted, steps=Seen(noted, "steps.", **results), n=1)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ steps.s7.f3 }}", ["steps", "steps.s7", "s7.f3"]),
        ("{{ steps.s7.f3[0] + 1 }}", ["steps", "steps.s7", "s7.f3"]),
        ("{{ steps['s' ~ 7].f3 | length }}", ["steps", "steps.s7", "s7.f3"]),
        ("u/{{ n }}/{{ steps.s1.f0 | join }}", ["n", "steps", "steps.s1", "s1.f0"]),
        ("{{ steps.s1 is defined }}", ["steps", "steps.s1"]),
        ("{{ steps.nobody.x | default(n) }}", ["steps", "steps.nobody", "n"]),
        ("{{ n if n else steps.s1.f1 }}", ["n", "n"]),
        ("{{ n or steps.s1.f1 }}", ["n"]),
        ("{{ steps | length }}", ["steps"]),
        ("{{ steps.get('s9').f1[0] }}", ["steps", "steps.s9", "s9.f1"]),
        ("nothing at all", []),
    ],
)
@pytest.mark.parametrize("templates", [STRICT, CHAINABLE])
def test_only_the_named_paths_are_looked_up(templates: Templates, template: str, expected: list[str]) -> None:
    noted: list[str] = []
    templates.value(template, nested(noted))
    assert noted == expected


def test_the_truth_of_a_large_value_is_found_without_reading_it() -> None:
    noted: list[str] = []
    assert STRICT.truth("{{ steps }}", nested(noted)) is True
    assert noted == ["steps"]


class Elsewhere(Mapping[str, Any]):
    """Its values are not in memory."""

    def __getitem__(self, key: str) -> Any:
        raise Missing(facts=[7], blobs=["far away"])

    def __iter__(self) -> Iterator[str]:
        return iter(("a", "b"))

    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize(
    "template",
    [
        "{{ far.a }}",
        "{{ far.a.b }}",
        "text {{ far.a }}",
        "{{ far.a + 1 }}",
        "{{ far.a == 1 and true }}",
        "{{ far.a | default(1) }}",
        "{{ far.a is defined }}",
        "{{ far.a.b.c | default(1) }}",
        "{{ far[key] }}",
        "{{ far[key] | default(1) }}",
        "{{ far.get('a') }}",
        "{{ far.items() }}",
        "{{ far.values() }}",
        "{{ far | items }}",
        "{{ far | dictsort }}",
        "{{ far | tojson }}",
        "{{ far }}",
        "{{ [far] }}",
        "{{ far ~ 'x' }}",
        "{{ far == {'a': 1, 'b': 2} }}",
        "{{ [far] | map(attribute='a') }}",
        "{{ [far] | selectattr('a') }}",
        "{{ [far] | sort(attribute='a') }}",
        "{{ not far.a }}",
        "{{ 1 if far.a else 2 }}",
    ],
)
@pytest.mark.parametrize("templates", [STRICT, CHAINABLE])
def test_a_value_that_is_not_in_memory_is_asked_for(templates: Templates, template: str) -> None:
    with pytest.raises(Missing) as missing:
        templates.value({"key": [template]}, {"far": Elsewhere(), "key": "a"})
    assert (set(missing.value.facts), set(missing.value.blobs)) == ({7}, {"far away"})


def test_what_is_not_read_is_not_asked_for() -> None:
    view = {"far": Elsewhere(), "n": 1}
    assert STRICT.value("{{ n if n else far.a }}", view) == 1
    assert STRICT.value("{{ far | length }} {{ far.keys() | join }}", view) == "2 ab"


def test_an_evaluation_that_failed_does_not_trouble_the_next() -> None:
    for _ in range(3):
        with pytest.raises(Missing):
            STRICT.value("{{ far.a + 1 }}", {"far": Elsewhere()})
        with pytest.raises(CannotEvaluate, match="'nobody' is not defined"):
            STRICT.value("{{ nobody + 1 }}", {})
        assert STRICT.value("{{ n + 1 }}", {"n": 1}) == 2


def test_a_text_is_read_once_and_long_ones_are_not_kept() -> None:
    text._kept.cache_clear()
    for n in range(10):
        assert STRICT.value("{{ n + 1 }}", {"n": n}) == n + 1
    assert (text._kept.cache_info().misses, text._kept.cache_info().hits) == (1, 9)
    STRICT.value("x" * 10_000 + "{{ n }}", {"n": 1})
    assert text._kept.cache_info().currsize == 1


def test_not_every_text_there_ever_was_is_kept() -> None:
    for n in range(text._READ + 100):
        STRICT.value(f"{{{{ {n} }}}}", {})
    assert text._kept.cache_info().currsize == text._READ
