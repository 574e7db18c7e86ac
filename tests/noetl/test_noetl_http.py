"""Requests of NoETL files, to a site on the loopback address."""

import json

import pytest

from tests.noetl.house import House
from tests.tools.web import Answer, Asked, Site, says

Web = tuple[Site, str]


def echo(asked: Asked) -> Answer:
    body = asked.body.decode()
    return says({"method": asked.method, "query": asked.query, "body": body, "type": asked.headers.get("content-type")})


def ask(house: House, site: Web, keys: str) -> object:
    web, address = site
    web["/echo"] = echo
    text = f"workload: {{url: x, nothing: null}}\nworkflow: [{{step: a, tool: {{kind: http, {keys}}}}}]"
    seen = house.play(text, {"url": f"{address}/echo"})
    assert seen.status == "completed", seen.error
    return seen.result


@pytest.mark.parametrize("name", ["url", "endpoint"])
def test_a_request_without_a_method_is_get_and_its_body_has_two_names(house: House, site: Web, name: str) -> None:
    found = ask(house, site, f'{name}: "{{{{ url }}}}"')
    assert isinstance(found, dict)
    assert found["status_code"] == 200 and found["data"] == found["body"] and found["data"]["method"] == "GET"
    assert {"headers", "url", "elapsed"} <= found.keys()


def test_parameters_that_are_null_are_not_sent(house: House, site: Web) -> None:
    found = ask(house, site, 'url: "{{ url }}", params: {a: 1, b: null, c: "{{ nothing }}", d: "", e: [x, y]}')
    assert isinstance(found, dict) and found["data"]["query"] == {"a": ["1"], "e": ["x", "y"]} | (
        {"d": [""]} if "d" in found["data"]["query"] else {}
    )


@pytest.mark.parametrize("name", ["body", "payload", "json", "data"])
def test_a_body_is_sent_as_json_under_any_of_its_names(house: House, site: Web, name: str) -> None:
    found = ask(house, site, f'url: "{{{{ url }}}}", method: POST, {name}: {{n: "{{{{ 1 + 1 }}}}"}}')
    assert isinstance(found, dict)
    assert json.loads(found["data"]["body"]) == {"n": 2} and found["data"]["type"].startswith("application/json")


def test_a_form_is_sent_as_a_form_and_text_as_it_is(house: House, site: Web) -> None:
    form = ask(house, site, 'url: "{{ url }}", method: POST, form: {a: b}')
    text = ask(house, site, 'url: "{{ url }}", method: POST, body: "a {{ 1 }}"')
    assert isinstance(form, dict) and form["data"]["body"] == "a=b"
    assert isinstance(text, dict) and text["data"]["body"] == "a 1"


@pytest.mark.parametrize("status", [301, 404, 500, 302])
def test_a_status_outside_of_2xx_is_an_error_outcome_with_its_body(house: House, site: Web, status: int) -> None:
    web, address = site
    web["/bad"] = says({"why": "x"}, status)
    text = f"""\
workflow:
  - step: a
    tool: {{kind: http, url: "{address}/bad", follow_redirects: false}}
    next: {{arcs: [{{step: b, when: "{{{{ output.error.status_code == {status} }}}}"}}]}}
  - {{step: b, tool: {{kind: noop, result: "{{{{ a.error.code }}}}"}}}}
"""
    assert house.play(text).result == f"HTTP_{status}"


def test_a_time_limit_stops_the_request(house: House, site: Web) -> None:
    web, address = site

    def wait(asked: Asked) -> Answer:
        web.stop.wait(60)
        return says({})

    web["/slow"] = wait
    for limit in ("timeout: 0.3", "timeout_seconds: 0.3", "spec: {timeout: {connect: 0.1, read: 0.2}}"):
        seen = house.play(f'workflow: [{{step: a, tool: {{kind: http, url: "{address}/slow", {limit}}}}}]')
        assert seen.status == "failed" and seen.fault.kind == "timeout"


@pytest.mark.parametrize(("kind", "found"), [("text", '{"n": 1}'), ("json", {"n": 1}), ("binary", "eyJuIjogMX0=")])
def test_the_type_of_the_response_says_how_to_read_it(house: House, site: Web, kind: str, found: object) -> None:
    web, address = site
    web["/a"] = Answer(200, {"content-type": "application/json"}, b'{"n": 1}')
    seen = house.play(f'workflow: [{{step: a, tool: {{kind: http, url: "{address}/a", response_type: {kind}}}}}]')
    assert seen.result["data"] == found and seen.result["body"] == found


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        ("{type: bearer, token: t}", "authorization", "Bearer t"),
        ("{type: basic, username: u, password: p}", "authorization", "Basic dTpw"),
        ("{type: api_key, header: X-Key, value: k}", "x-key", "k"),
    ],
)
def test_credentials_can_be_written_out(house: House, site: Web, auth: str, header: str, value: str) -> None:
    web, address = site
    web["/a"] = says({})
    house.play(f'workflow: [{{step: a, tool: {{kind: http, url: "{address}/a", auth: {auth}}}}}]')
    assert web.asked[0].headers[header] == value


def test_pages_are_fetched_by_a_cycle_of_steps(house: House, site: Web) -> None:
    web, address = site
    web["/u"] = lambda asked: says(
        {"rows": [int(asked.query["offset"][0])], "has_more": asked.query["offset"] != ["20"]}
    )
    text = """\
workload: {api: x}
workflow:
  - {step: start, set: {ctx.offset: 0, ctx.all: []}, next: {arcs: [{step: get_page}]}}
  - step: get_page
    tool: {kind: http, url: "{{ workload.api }}/u", params: {offset: "{{ ctx.offset }}"}}
    next: {arcs: [{step: check}]}
  - step: check
    tool: {kind: python, input: {r: "{{ get_page }}", o: "{{ ctx.offset }}"},
        code: "result = {'o': o + 10, 'more': r['body']['has_more'], 'rows': r['data']['rows']}"}
    set: {ctx.offset: "{{ check.o }}", ctx.more: "{{ check.more }}", ctx.all: "{{ ctx.all + check.rows }}"}
    next: {arcs: [{step: get_page, when: "{{ ctx.more }}"}, {step: done}]}
  - {step: done, tool: {kind: noop, result: "{{ ctx.all }}"}}
"""
    assert house.play(text, {"api": address}).result == [0, 10, 20]


def test_pages_are_fetched_by_a_jump_inside_a_pipeline(house: House, site: Web) -> None:
    web, address = site
    web["/u"] = lambda asked: says(
        {
            "rows": [asked.query["page"][0]],
            "next": None if asked.query["page"] == ["3"] else int(asked.query["page"][0]) + 1,
        }
    )
    text = """\
workload: {api: x}
workflow:
  - step: all
    tool:
      - name: get
        kind: http
        url: "{{ api }}/u"
        params: {page: "{{ iter.page | default(1) }}"}
        spec:
          policy:
            rules:
              - {when: "{{ output.status == 'error' }}", then: {do: fail}}
              - else: {then: {do: continue, set: {iter.page: "{{ output.data.next }}",
                  iter.rows: "{{ (iter.rows | default([])) + output.data.data.rows }}"}}}
      - name: more
        kind: noop
        spec: {policy: {rules: [{when: "{{ iter.page }}", then: {do: jump, to: get}}]}}
      - {name: done, kind: noop, result: {rows: "{{ iter.rows }}"}}
"""
    assert house.play(text, {"api": address}).result["rows"] == ["1", "2", "3"]
    keys = [asked.headers["idempotency-key"] for asked in web.asked]
    assert len(set(keys)) == 3  # each is a request of its own
