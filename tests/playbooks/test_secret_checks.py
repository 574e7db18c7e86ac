"""What a playbook says of secrets, checked before any run: one look at each template answers all questions."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from refold.playbooks.checks import secrets
from refold.playbooks.playbook import read
from refold.playbooks.problems import InvalidPlaybook, Problem
from refold.templates import uses_of
from refold.tools.catalog import CATALOG

HEAD = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: one}\n"
TEXT = """\
keychain:
  - {name: shop, kind: static, map: {token: x}}
workflow:
  - step: login
    tool: {kind: noop, result: "{{ secrets.tokn }} and {{ keychain.shp.token }}"}
    output: {secret: true}
    next: {arcs: [{step: b, when: "{{ output.data.x == 1 }}"}]}
  - step: b
    when: "{{ steps.login.x }}"
    tool: {kind: http, url: "{{ login.x }}", headers: {x: {secret: key}}}
"""


def problems(text: str, known: Sequence[str] | None = ("token", "key")) -> list[Problem]:
    with pytest.raises(InvalidPlaybook) as said:
        read(HEAD + text, "play.yaml", CATALOG, secrets=lambda: known)
    return list(said.value.problems)


def found(text: str, wanted: Problem) -> str:
    """The word that a problem points at."""
    line = (HEAD + text).splitlines()[wanted.place.line - 1]
    return line[wanted.place.column - 1 :][: wanted.length]


def test_each_question_is_answered_where_the_name_stands() -> None:
    told = problems(TEXT)
    assert [(each.code, found(TEXT, each)) for each in told] == [
        ("unknown-secret", "tokn"),
        ("unknown-entry", "s"),
        ("sealed-result", "output"),
        ("sealed-result", "steps"),
    ]
    assert [each.hint for each in told[:2]] == ["did you mean `token`?", "did you mean `shop`?"]
    assert [each.message for each in told[2:]] == 2 * ["the result of `login` is secret, and cannot be read here"]


def test_each_template_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[str] = Counter()

    def counted(text: str, *more: Any) -> Any:
        asked[text] += 1
        return uses_of(text, *more)

    monkeypatch.setattr(secrets, "uses_of", counted)
    problems(TEXT)
    assert len(asked) == 4 and set(asked.values()) == {1}, asked


def test_in_a_file_that_speaks_of_no_secret_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(secrets, "uses_of", lambda text, *more: asked.append(text))
    read(HEAD + 'workflow: [{step: a, tool: {kind: noop, result: "{{ run.id }}"}}]\n', "play.yaml", CATALOG)
    assert asked == []


def test_a_condition_of_a_block_cannot_read_a_secret_result_either() -> None:
    text = """\
workflow:
  - {step: login, tool: {kind: noop, result: {x: 1}}, output: {secret: true}, next: again}
  - name: again
    while: "{{ login.x }}"
    do: [{step: b, tool: {kind: noop}}]
"""
    assert [(each.code, found(text, each)) for each in problems(text)] == [("sealed-result", "login")]


def test_all_steps_as_a_whole_are_no_secret_result() -> None:
    text = TEXT.replace("steps.login.x", "steps | length > 0").replace("output.data.x == 1", "output.status == 'ok'")
    assert "sealed-result" not in [each.code for each in problems(text)]
