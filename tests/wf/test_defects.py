"""Defects of the engine that this language comes from: each test shows that one of them is absent."""

from pathlib import Path
from typing import Any

import pytest

from refold.playbooks.problems import InvalidPlaybook
from refold.testing import engine
from refold.wiring.playbook_files import playbook
from tests.wf.programs import Program, lay_out, problems, run, warnings

NO: dict[str, Any] = {"fail": "no"}


def test_blocks_of_always_do_their_work_after_a_failure(tmp_path: Path) -> None:
    text = """workflow w {
      call a
      call b
      always {
        unless b.open { call tidy }
        do { max_iterations = 3  call look } while look.open
        if look.open { call never } else { call one }
        do { call two  if a.seen { call three } }
      }
    }"""
    answers: dict[str, list[Any]] = {"a": [{"markers": ["seen"]}], "b": [NO], "look": [{"markers": ["open"]}, {}]}
    done = run(Program(text=text, agents=answers), tmp_path / "p")
    assert (done.status, done.calls) == ("failed", ["a", "b", "tidy", "look", "look", "one", "two", "three"])


@pytest.mark.parametrize(
    "keys", ["max_iterations = 0", "max_iterations = 2 stuck_after = 0", "max_iterations = 2 stuck_after = 1"]
)
def test_limits_that_would_fail_every_loop_are_refused(keys: str, tmp_path: Path) -> None:
    found = problems(Program(text=f"workflow w {{ do {{ {keys} call a }} while a.x }}"), tmp_path / "p")
    assert [code for code, _, _ in found] == ["bad-value"]


def test_parallel_inside_do_inherits_schema_and_snippets_in_the_order_of_the_blocks(tmp_path: Path) -> None:
    text = """workflow w {
      do { with = outer  output = "wide"
        do { with = [inner]
          parallel { with = "side"  output = "narrow"  call a { with = own }  call b { output = "wide" } }
        }
      }
    }"""
    schemas = {name: {"fields": {name: "boolean"}} for name in ("wide", "narrow")}
    files = {f".conductor/prompts/{name}.md": f"<{name}>" for name in ("outer", "inner", "side", "own")}
    answers: dict[str, list[Any]] = {"a": [{"output": {"narrow": True}}], "b": [{"output": {"wide": True}}]}
    done = run(Program(text=text, schemas=schemas, files=files, agents=answers), tmp_path / "p")
    assert done.status == "completed", done.why
    prompts = {asked["agent"]: asked for asked in done.asked}
    assert prompts["a"]["prompt"].startswith("<outer>\n\n<inner>\n\n<side>\n\n<own>\n\n")
    assert prompts["b"]["prompt"].startswith("<outer>\n\n<inner>\n\n<side>\n\nWhen")
    assert list(prompts["a"]["rules"]["fields"]) == ["narrow"]
    assert list(prompts["b"]["schema"]["properties"]) == ["wide"]


def test_a_failed_branch_leaves_nothing_and_a_skipped_one_leaves_what_was_there(tmp_path: Path) -> None:
    text = """workflow w {
      call a  call b
      parallel { fail_fast = false  min_success = 1  call a  call b { if = "a.never" } }
      if a.open { call never }
      if b.open { call end }
    }"""
    answers: dict[str, list[Any]] = {"a": [{"markers": ["open"]}, NO], "b": [{"markers": ["open"]}]}
    done = run(Program(text=text, agents=answers), tmp_path / "p")
    assert done.calls == ["a", "b", ["a"], "end"]


def test_a_child_that_ends_with_a_gate_and_has_always_gives_the_markers_of_its_last_step(tmp_path: Path) -> None:
    kid = """workflow kid {
      call work
      gate human_approval { prompt = "ok?" }
      always { call tidy }
    }"""
    answers: dict[str, list[Any]] = {
        "work": [{"markers": ["well"], "context": "worked"}],
        "tidy": [{"markers": ["tidied"]}],
    }
    text = (
        'workflow w { call workflow kid if kid.well { script s { run = "s.sh" env = { C = "{{prior_context}}" } } } }'
    )
    done = run(Program(text=text, others=[kid], agents=answers), tmp_path / "p")
    assert done.calls == ["work", "tidy", "s"]
    assert done.env == {"C": "worked"}


def test_steps_inside_blocks_of_a_child_can_be_named(tmp_path: Path) -> None:
    kid = "workflow kid { do { parallel { call deep } } }"
    text = "workflow w { call workflow kid if deep.x { call a } }"
    done = run(Program(text=text, others=[kid], agents={"deep": [{"markers": ["x"]}]}), tmp_path / "p")
    assert done.calls == [["deep"], "a"]


def test_an_input_with_a_name_of_the_engine_is_the_input_and_is_warned_of(tmp_path: Path) -> None:
    text = 'workflow w { inputs { workflow_run_id } script s { run = "s.sh" env = { R = "{{workflow_run_id}}" } } }'
    program = Program(text=text, inputs={"workflow_run_id": "mine"})
    assert run(program, tmp_path / "p").env == {"R": "mine"}
    assert warnings(program, tmp_path / "q") == [("shadowed-name", 1, 23)]


OPTIONS = """workflow w {
  call look
  gate human_approval { prompt = "which?"  options = look.choices }
  script s { run = "s.sh" env = { G = "{{gate_feedback}}" } }
}"""


@pytest.mark.parametrize("choices", [["a", "b", "c"], {"a": "First", "b": "Second", "c": "Third"}])
def test_options_that_an_agent_without_a_schema_gives_can_be_chosen(choices: Any, tmp_path: Path) -> None:
    file = lay_out(Program(text=OPTIONS), tmp_path / "p")
    with engine() as t:
        t.fake("look", {"choices": choices})
        t.fake("s", {})
        started = t.start(str(file))
        t.do(t.engine.decide(started.id, "human_approval", "approve", by="ann", choices=["c", "a"]))
        started.result()
        assert t.calls("s")[0].config["env"] == {"G": "c, a"}


def test_options_that_lead_nowhere_fail_the_gate_before_it_waits(tmp_path: Path) -> None:
    done = run(Program(text=OPTIONS, agents={"look": [{"choices": 3}]}), tmp_path / "p")
    assert (done.status, done.gates, done.kind) == ("failed", [], "expression")


def test_an_output_block_without_its_end_is_reported_in_the_log_of_the_run(tmp_path: Path) -> None:
    text = 'workflow w { script s { run = "sh s.sh" } if s.done { call never } }'
    script = 'echo \'<<<FLOW_OUTPUT>>> {"markers": ["done"]}\'\n'
    file = lay_out(Program(text=text, files={"s.sh": script}), tmp_path / "p")
    with engine() as t:
        started = t.start(str(file))
        started.result()
        lines = [str(line.get("text", line)) for _, line in t.store.views.lines(started.id)]
        assert any("<<<END_FLOW_OUTPUT>>>" in line and "warning" in line for line in lines), lines


def test_a_block_that_can_still_reach_its_min_success_goes_on(tmp_path: Path) -> None:
    text = "workflow w { parallel { min_success = 2  call a  call b  call c } call end }"
    done = run(Program(text=text, agents={"a": [NO]}), tmp_path / "p")
    assert (done.status, done.calls) == ("completed", [["a", "b", "c"], "end"])


def test_retries_and_on_fail_of_scripts_work(tmp_path: Path) -> None:
    text = """workflow w {
      script one { run = "one.sh"  retries = 1 }
      script two { run = "two.sh"  on_fail = continue }
      script three { run = "three.sh"  on_fail = mend }
    }"""
    done = run(Program(text=text, scripts={"one": [NO, {}], "two": [NO], "three": [NO]}), tmp_path / "p")
    assert (done.status, done.calls) == ("failed", ["one", "one", "two", "three", "mend"])


@pytest.mark.parametrize("form", ["call workflow {0}", "foreach f {{ over = things max_parallel = 1 workflow = {0} }}"])
def test_a_chain_has_six_workflows_at_most_however_they_are_started(form: str, tmp_path: Path) -> None:
    others = [f"workflow k{n} {{ {form.format(f'k{n + 1}')} }}" for n in range(1, 6)]
    last = "workflow k6 { call a }"
    items = {"things": [{"id": "1"}]}
    text = f"workflow w {{ {form.format('k2')} }}"
    assert problems(Program(text=text, others=[*others, last], items=items), tmp_path / "six") == []
    text = f"workflow w {{ {form.format('k1')} }}"
    found = problems(Program(text=text, others=[*others, last], items=items), tmp_path / "seven")
    assert [code for code, _, _ in found] == ["too-deep"]


def test_a_template_with_spaces_is_resolved(tmp_path: Path) -> None:
    text = 'workflow w { inputs { who } script s { run = "s.sh {{ who }}" env = { A = "{{  who\n}}" } } }'
    done = run(Program(text=text, inputs={"who": "Ada"}), tmp_path / "p")
    assert (done.run, done.env) == ("s.sh 'Ada'", {"A": "Ada"})


def test_templates_of_scope_and_filter_are_substituted(tmp_path: Path) -> None:
    text = """workflow w {
      inputs { who }
      foreach each { over = names  max_parallel = 1  workflow = kid  filter = { ids = ["{{who}}", b] }
                     scope = { label = "x{{who}}" }  inputs = { a = "{{item.id}} {{item.ref}} {{who}}" } }
      script s { run = "s.sh {{each.context}}" }
    }"""
    kid = 'workflow kid { inputs { a required } script k { run = "k.sh {{a}}" } }'
    source = {"kind": "list", "items": "{{ filter.ids + [scope.label] }}"}
    bindings = {"items": {"names": {"source": source, "id": "{{ item }}", "ref": "<{{ item }}>"}}}
    done = run(Program(text=text, others=[kid], bindings=bindings, inputs={"who": "Ada"}), tmp_path / "p")
    assert done.items == {"each": {"Ada": "completed", "b": "completed", "xAda": "completed"}}
    assert done.run == "s.sh 'foreach each: 3 completed, 0 failed, 0 skipped of 3 names'"


def test_a_circle_of_items_can_be_cut_and_then_every_item_runs(tmp_path: Path) -> None:
    text = "workflow w { foreach e { over = things ordered = true on_cycle = warn max_parallel = 1 workflow = kid } }"
    items = {"things": [{"id": "a", "after": ["b"]}, {"id": "b", "after": ["a", "gone"]}]}
    done = run(Program(text=text, others=["workflow kid { call x }"], items=items), tmp_path / "p")
    assert done.items == {"e": {"a": "completed", "b": "completed"}}


def test_a_call_that_takes_too_long_is_a_failed_try(tmp_path: Path) -> None:
    file = lay_out(
        Program(text="workflow w { call a { timeout = 5s  retries = 1  on_fail = continue } call b }"), tmp_path / "p"
    )
    with engine() as t:
        from refold.testing import hangs

        t.fake("a", hangs())
        t.fake("b", {})
        t.start(str(file)).result("1m")
        assert [call.step for call in t.calls()] == ["a", "a", "b"]


def test_the_next_try_is_told_why_the_last_one_failed_and_how_many_are_left(tmp_path: Path) -> None:
    text = "workflow w { call a { retries = 2 } }"
    tell = f'cat > {tmp_path}/asked.$1; test $1 = 3 || {{ echo "not yet" >&2; exit 1; }}'
    agent = {"kind": "shell", "command": ["sh", "-c", tell, "sh", "{{ try }}"], "stdin": "{{ prompt }}"}
    file = lay_out(Program(text=text), tmp_path / "p", {"*": agent})
    with engine() as t:
        t.allow("agent", "shell")
        t.run(str(file))
    said = [(tmp_path / f"asked.{n}").read_text().split("\n\n")[0] for n in (1, 2, 3)]
    assert "first try" not in said[0]
    assert "not yet" in said[1] and said[1].endswith("Tries left after this one: 1")
    assert said[2].endswith("Tries left after this one: 0")


def test_always_runs_after_a_cancellation(tmp_path: Path) -> None:
    script = 'script bye { run = "bye.sh" env = { H = "{{workflow_status}}" } }'
    text = f"workflow w {{ gate human_review {{ }} always {{ {script} }} }}"
    file = lay_out(Program(text=text), tmp_path / "p")
    with engine() as t:
        t.fake("bye", {})
        started = t.start(str(file))
        started.cancel()
        t.advance("1m")
        assert started.status == "cancelled"
        assert t.calls("bye")[0].config["env"] == {"H": "cancelled"}


def test_a_key_that_is_idempotent_stays_the_same_over_tries(tmp_path: Path) -> None:
    text = 'workflow w { script s { run = "sh s.sh"  retries = 1 } }'
    script = "echo $REFOLD_IDEMPOTENCY_KEY >> keys; test $(wc -l < keys) = 2"
    file = lay_out(Program(text=text, files={"s.sh": script}), tmp_path / "p")
    with engine() as t:
        t.run(str(file))
    keys = (tmp_path / "p" / "keys").read_text().split()
    assert len(keys) == 2 and len(set(keys)) == 1


CHECKED = """workflow w {
  gate ci { prompt = "{{who}}"  timeout = 10m  on_timeout = %s }
  call after
}"""


def checked(on_timeout: str, looks: list[Any], folder: Path) -> tuple[str, str, int]:
    check = {"kind": "shell", "command": ["ci", "{{ gate }}", "{{ prompt }}"]}
    state = "output.data.stdout"
    gate = {
        "check": check,
        "approved": f"{{{{ {state} == 'ok' }}}}",
        "rejected": f"{{{{ {state} == 'bad' }}}}",
        "every": "1m",
    }
    file = lay_out(Program(text=CHECKED % on_timeout, bindings={"gates": {"ci": gate}}), folder)
    with engine() as t:
        given = iter(looks)

        def look() -> Any:
            found = next(given, looks[-1])
            if isinstance(found, Exception):
                raise found
            return {"exit_code": 0, "stdout": found, "stderr": "", "truncated": 0}

        t.fake("ci", look)
        t.fake("after", {})
        started = t.start(str(file), who="Ada")
        t.advance("1h")
        error = started.state().error
        kind = error.fault.kind if error is not None and error.fault is not None else ""
        return started.status, kind, len(t.calls("ci"))


def test_a_gate_that_is_bound_to_a_command_asks_again_until_it_is_decided(tmp_path: Path) -> None:
    assert checked("fail", ["?", ValueError("no net"), "?", "ok"], tmp_path / "a")[:2] == ("completed", "")
    assert checked("fail", ["?", "bad"], tmp_path / "b") == ("failed", "rejected", 2)
    assert checked("fail", ["?"], tmp_path / "c")[:2] == ("failed", "timeout")
    assert checked("continue", ["?"], tmp_path / "d")[:2] == ("completed", "")


def test_names_that_nobody_answers_for_are_reported_at_their_places(tmp_path: Path) -> None:
    text = """workflow w {
  call ghost
  gate deploy { }
  foreach e { over = nothing max_parallel = 1 workflow = kid }
}"""
    file = lay_out(Program(text=text, others=["workflow kid { }"]), tmp_path / "p")
    (tmp_path / "p" / "refold-bindings.yaml").unlink()
    with pytest.raises(InvalidPlaybook) as caught:
        playbook(file)
    found = [(each.code, *each.place) for each in caught.value.problems]
    assert found == [("unknown-agent", 2, 8), ("unknown-gate", 3, 8), ("unknown-provider", 4, 22)]
    assert all("refold-bindings.yaml" in each.hint for each in caught.value.problems)
