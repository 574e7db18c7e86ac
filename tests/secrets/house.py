"""A program that runs a playbook for every tool, with a secret in it, and keeps a copy of its database while open."""

import asyncio
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from refold.errors import RefoldError
from refold.plan import Plan
from refold.playbooks.playbook import read
from refold.settings import Settings
from refold.tools.catalog import CATALOG
from refold.wiring import open_process
from tests.tools.web import Answer, Asked, Site, says, served

ROOT = Path(__file__).parents[2]
SECRET = {"secret": "canary"}
AUTH = {"auth": {"bearer": SECRET}}
SPELT = "import base64, json, urllib.parse\nprint(base64.b64encode(b'u:' + token.encode()).decode())\n"
SPELT += "print(json.dumps([token]), repr(token.encode()), urllib.parse.quote(token, ''), token.encode().hex())\n"


def told(token: Any) -> Any:
    """For functions in processes of their own."""
    return token


def shouted(token: Any) -> None:
    raise LookupError({"token": token})


def works(address: str, postgres: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Each with how it must end: `completed`, or the kind of its failure."""
    found: dict[str, dict[str, Any]] = {}

    def add_step(ends: str, name: str, **step: Any) -> None:
        found[name] = {"ends": ends, "step": {"step": "a", **step}}

    def add(ends: str, name: str, *, timeout: float | None = None, seal: bool = False, **tool: Any) -> None:
        step = {"step": "a", "tool": tool} | ({"timeout": timeout} if timeout is not None else {})
        found[name] = {"ends": ends, "step": step | ({"output": {"secret": True}} if seal else {})}

    token = {"token": SECRET}
    for way in ("process", "inline"):
        for ends, name, code in (
            ("completed", "used", SPELT + "import logging\nlogging.error('it is %s', token)\nresult = len(token)"),
            ("secret", "told", "result = {'deep': [token]}"),
            ("secret", "told in base64", "import base64\nresult = base64.b64encode(token.encode()).decode()"),
            ("secret", "told as a name", "result = {token: 1}"),
            ("error", "raised", "raise ValueError(token, {'a': token.encode()})"),
            ("no_json", "told beside what is not JSON", "result = {token: object()}"),
        ):
            add(ends, f"python {way} {name}", kind="python", code=code, isolation=way, input=token)
    code = "import os, sys\nprint(token, file=sys.stderr, flush=True)\nos._exit(3)"
    add("died", "python died", kind="python", code=code, input=token)
    code = "import time\nprint(token, flush=True)\ntime.sleep(3600)"
    add("timeout", "python timeout", kind="python", code=code, input=token, timeout=0.7)
    add("completed", "python sealed", kind="python", code="result = token", input=token, seal=True)
    for way in ("process", "inline"):
        for ends, function in (("secret", "told"), ("error", "shouted")):
            entry = f"tests.secrets.house:{function}"
            add(ends, f"function {way} {function}", kind="python", entry=entry, isolation=way, input=token)
    _add_shell(add)
    _add_cut_and_wrapped(add)
    _add_sealed(add_step)
    _add_http(add, address)
    _add_sql(add)
    _add_postgres(add, postgres)
    _add_transfer(add, address, postgres, folder)
    _add_outward(add, address)
    for text in ("{{ token.nothing.at.all }}", "{{ token + 1 }}", "{{ token | fromjson }}", "{{ token.x }}{{ token }}"):
        add("expression", f"template {text}", kind="noop", result=text, input=token)
    add("secret", "template that tells", kind="noop", result="it is {{ token }}", input=token)
    add("expression", "set that tells", kind="noop", result=1, input=token, set={"ctx.told": "{{ secrets.canary }}"})
    rules = {
        "rules": [{"when": "{{ output.status == 'error' }}", "then": {"do": "retry", "attempts": 2, "delay": 0.01}}]
    }
    add("expression", "tried again", kind="noop", result="{{ token + 1 }}", input=token, spec={"policy": rules})
    return found


def _add_shell(add: Any) -> None:
    env = {"env": {"TOKEN": SECRET}}
    for ends, name, script, more in (
        ("completed", "used", 'test -n "$TOKEN"', env),
        ("completed", "environment", "env", {}),
        ("completed", "read", "wc -c", {"stdin": SECRET}),
        ("secret", "told", 'echo "$TOKEN"', env),
        ("secret", "told in base64", 'printf %s "a:$TOKEN" | base64 -w0', env),
        ("exit", "failed", 'echo "$TOKEN" >&2; printf %s "$TOKEN" | base64 -w0; exit 3', env),
        ("timeout", "timeout", 'echo "$TOKEN"; sleep 60', env),
    ):
        limit = {"timeout": 0.7} if ends == "timeout" else {}
        add(ends, f"shell {name}", kind="shell", script=script, **more, **limit)
    add("secret", "shell argument", kind="shell", command=["echo", SECRET])
    add("no_program", "shell not there", kind="shell", command=["/nowhere"], env={"TOKEN": SECRET})


def _add_cut_and_wrapped(add: Any) -> None:
    """Secrets at the place where Refold cuts a text, and as other programs wrap them."""
    env = {"env": {"TOKEN": SECRET}}
    filler = "head -c {} /dev/zero | tr '\\0' {}"
    mib, before = 1024 * 1024, 15  # characters of the secret before the cut
    for ends, name, script in (
        ("secret", "output cut", filler.format(mib - before, "x") + '; printf %s "$TOKEN$TOKEN"'),
        ("secret", "errors cut", f'{{ {filler.format(mib - before, "x")}; printf %s "$TOKEN"; }} >&2'),
        ("exit", "failed and cut", filler.format(mib - before, "x") + '; printf %s "$TOKEN"; exit 3'),
        ("exit", "last line cut", f'{{ printf %s "$TOKEN"; {filler.format(8000 - 20, "y")}; }} >&2; exit 3'),
        ("exit", "long line cut", filler.format(16 * 1024 - before, "z") + '; echo "$TOKEN"; sleep 0.3; exit 3'),
        ("secret", "base64 wrapped", 'printf %s "a:$TOKEN" | base64 -w 20'),
        ("secret", "base64 wrapped at 5", 'printf %s "$TOKEN" | base64 -w 5 | sed "s/$/\r/"'),
        ("exit", "base64 wrapped and failed", 'printf %s "$TOKEN" | base64 -w 20 | tee /dev/stderr; exit 3'),
        ("secret", "hex wrapped", 'printf %s "$TOKEN" | xxd -p -c 7'),
        ("secret", "hex in groups", 'printf %s "$TOKEN" | od -An -tx1 -w8'),
        ("secret", "hex with colons", 'printf %s "$TOKEN" | xxd -p -c 9 -u | sed "s/../&:/g"'),
        ("secret", "in capitals", 'printf %s "$TOKEN" | tr a-z A-Z'),
        ("exit", "in small letters", 'printf %s "$TOKEN" | tr A-Z a-z >&2; exit 3'),
    ):
        add(ends, f"shell {name}", kind="shell", script=script, **env)
    slow = 'printf %s "$TOKEN" | base64 -w 20 | while read -r line; do echo "$line"; sleep 0.3; done; exit 3'
    add("exit", "shell base64 wrapped, line by line", kind="shell", script=slow, **env)
    lines = f'{filler.format(mib - 40, "x")} | fold -w 1000; echo; printf %s "$TOKEN" | base64 -w 20'
    add("exit", "shell lines left out", kind="shell", script=f"{lines}; exit 3", **env)
    token = {"token": SECRET}
    code = "import os, sys\nprint(token + 'x' * 4080, file=sys.stderr, flush=True)\nos._exit(3)"
    add("died", "python died, last words cut", kind="python", code=code, input=token)
    for way in ("process", "inline"):
        code = "raise ValueError('x' * (32 * 1024 - 12) + token + 'y' * 70_000)"
        add("error", f"python {way} raised and cut", kind="python", code=code, isolation=way, input=token)
        code = "raise ValueError('x' * 70_000 + token + 'y' * (32 * 1024 - 12))"
        add("error", f"python {way} raised and cut behind", kind="python", code=code, isolation=way, input=token)
    add("error", "python raised in small letters", kind="python", code="raise ValueError(token.lower())", input=token)


def _add_sealed(add_step: Any) -> None:
    """Steps whose result is secret, where the value is made by the step: nobody knows it before."""
    made = {"name": "one", "kind": "python", "code": "result = {'fresh': token[::-1]}", "input": {"token": SECRET}}
    fresh, output = {"t": "{{ one.fresh }}"}, {"output": {"secret": True}}
    rules = [{"when": "{{ output.status == 'error' }}", "then": {"do": "retry", "attempts": 2, "delay": 0.3}}]
    again = {"spec": {"policy": {"rules": rules}}}
    for ends, name, second in (
        ("error", "failed", {"kind": "python", "code": "raise LookupError(str(t))", "input": fresh, **again}),
        ("exit", "shell failed", {"kind": "shell", "script": 'echo "$T"; exit 3', "env": {"T": "{{ one.fresh }}"}}),
        ("secret", "argument", {"kind": "shell", "command": ["echo", "{{ one.fresh }}"]}),
        ("expression", "no number", {"kind": "noop", "result": "{{ one.fresh + 1 }}"}),
        ("secret", "set", {"kind": "noop", "result": 1, "set": {"ctx.told": "{{ one.fresh }}"}}),
        ("completed", "emitted", {"kind": "emit", "event": "a", "data": {"x": "{{ one.fresh }}"}}),
        ("completed", "waited", {"kind": "wait", "seconds": 0.3}),
        ("completed", "printed", {"kind": "python", "code": "print(t)\nresult = 1", "input": fresh}),
    ):
        add_step(ends, f"sealed list {name}", tool=[made, {"name": "two", **second}], **output)
    env = {"env": {"TOKEN": SECRET}}
    told = 'printf %s "$TOKEN" | rev'
    for ends, name, script in (
        ("completed", "told", told),
        ("completed", "told long before its end", 'echo "$TOKEN" | tr a-z b-za; sleep 0.8'),  # a value of its own
        ("exit", "failed", f"{told}; {told} >&2; exit 3"),
    ):
        add_step(ends, f"sealed shell {name}", tool={"kind": "shell", "script": script, **env}, **output)
    for ends, name, type in (("completed", "fits", "string"), ("schema", "does not fit", "integer")):
        schema = {"type": "object", "properties": {"fresh": {"type": type}}, "required": ["fresh"]}
        add_step(ends, f"sealed schema {name}", tool=made, output={"secret": True, "schema": schema})


def _add_http(add: Any, address: str) -> None:
    for ends, name, keys in (
        ("completed", "used", {"url": f"{address}/ok", **AUTH}),
        ("secret", "echoed", {"url": f"{address}/echo", **AUTH}),
        ("server_error", "failed", {"url": f"{address}/fail", **AUTH}),
        ("completed", "in the address", {"url": f"{address}/ok", "params": {"key": SECRET}}),
        ("timeout", "late", {"url": f"{address}/late", "timeout": 0.5, **AUTH}),
        ("client_error", "refused", {"url": f"{address}/no", "headers": {"x-token": SECRET}}),
        ("not_found", "posted", {"url": f"{address}/nothing", "json": {"a": [SECRET]}}),
        ("invalid", "no address", {"url": SECRET}),
        ("connection", "nobody there", {"url": "http://127.0.0.1:1/x", "params": {"key": SECRET}}),
        ("invalid", "no method", {"url": f"{address}/ok", "method": SECRET}),
    ):
        add(ends, f"http {name}", kind="http", **keys)


def _add_sql(add: Any) -> None:
    for kind in ("sqlite", "duckdb"):
        for ends, name, query in (
            ("completed", "used", "SELECT length($1) AS n"),
            ("secret", "told", "SELECT $1 AS told"),
            ("sql", "failed", "SELECT $1 FROM nowhere"),
            ("sql", "not a number", "SELECT CAST($1 AS INTEGER) / 0 FROM (SELECT error($1))"),
        ):
            add(ends, f"{kind} {name}", kind=kind, query=query, params=[SECRET])


def _add_postgres(add: Any, url: str) -> None:
    twice = "CREATE TEMP TABLE t (s text UNIQUE); INSERT INTO t SELECT $1::text FROM (VALUES (1), (2)) AS v"
    for ends, name, query in (
        ("completed", "used", "SELECT length($1::text) AS n"),
        ("secret", "told", "SELECT $1::text AS told"),
        ("sql", "failed", "SELECT $1::text FROM nowhere"),
        ("sql", "not a number", "SELECT CAST($1::text AS integer)"),
        ("db_constraint", "there already", twice),
    ):
        add(ends, f"postgres {name}", kind="postgres", url=url, query=query, params=[SECRET])
    nowhere = {"host": "127.0.0.1", "port": 1, "database": "d", "user": "u"}
    for ends, name, keys in (
        ("completed", "password", {"url": url, "password": SECRET}),
        ("completed", "auth", {"auth": {"url": url, "password": SECRET}}),
        ("db_connection", "nobody there", {**nowhere, "password": SECRET}),
        (
            "db_connection",
            "nobody there by address",
            {"url": "postgresql://u:{{ secrets.canary | urlencode | replace('/', '%2F') }}@127.0.0.1:1/d"},
        ),
        ("db_connection", "no mode", {"url": url, "sslmode": SECRET}),
        ("invalid", "no address", {"url": SECRET}),
    ):
        add(ends, f"postgres {name}", kind="postgres", query="SELECT 1 AS n", **keys)


def _add_transfer(add: Any, address: str, postgres: str, folder: Path) -> None:
    """What a step is told to write somewhere is there, in a folder of its own, and nowhere else."""
    written = folder / "written"
    written.mkdir()
    (written / "x.sqlite").touch()
    csv: dict[str, Any] = {"type": "csv", "path": str(written / "x.csv")}
    databases: tuple[tuple[str, dict[str, Any], str, str], ...] = (
        ("sqlite", {"database": str(written / "x.sqlite")}, "SELECT $1 AS s", "SELECT $1 FROM nowhere"),
        ("duckdb", {}, "SELECT $1 AS s", "SELECT CAST($1 AS INTEGER) AS s"),
        ("postgres", {"url": postgres}, "SELECT $1::text AS s", "SELECT CAST($1::text AS integer) AS s"),
    )
    for kind, where, used, failed in databases:
        source = {"type": kind, **where, "params": [SECRET]}
        target = {**csv, "path": str(written / f"{kind}.csv")}
        add("completed", f"transfer {kind} used", kind="transfer", source={**source, "query": used}, target=target)
        add("sql", f"transfer {kind} failed", kind="transfer", source={**source, "query": failed}, target=csv)
    plain: dict[str, Any] = {"type": "duckdb", "query": "SELECT 'x' AS s"}
    server, fetched = {"type": "postgres", "url": postgres}, {"type": "http", "url": f"{address}/ok", **AUTH}
    for ends, name, source, target in (
        ("completed", "password", {**server, "password": SECRET, "query": "SELECT 1 AS n"}, csv),
        ("completed", "fetched", fetched, csv),
        ("server_error", "not fetched", {**fetched, "url": f"{address}/fail"}, csv),
        ("invalid", "no table", plain, {**server, "table": SECRET}),
        ("sql", "no column", plain, {**csv, "mapping": {"a": SECRET}}),
        ("missing", "no folder", plain, {**csv, "path": "/nowhere/{{ secrets.canary }}"}),
    ):
        add(ends, f"transfer {name}", kind="transfer", source=source, target=target)


def _add_outward(add: Any, address: str) -> None:
    model = {"kind": "llm", "model": "m", "prompt": "?", "api_key": SECRET}
    for ends, name, path in (
        ("completed", "used", "llm"),
        ("secret", "told", "echo"),
        ("server_error", "failed", "fail"),
    ):
        add(ends, f"llm {name}", **model, base_url=f"{address}/{path}")
    add("client_error", "llm asked", **{**model, "prompt": SECRET}, base_url=f"{address}/no")
    server = {"kind": "mcp", "command": [sys.executable, str(ROOT / "tests/tools/mcp_server.py")]}
    for ends, name, keys in (
        ("completed", "used", {"tool": "variable", "arguments": {"a": [SECRET]}}),
        ("secret", "told", {"tool": "variable", "env": {"VARIABLE": SECRET}}),
        ("tool_error", "failed", {"tool": "fail", "arguments": {"a": SECRET}}),
        ("client_error", "not there", {"tool": SECRET}),
    ):
        add(ends, f"mcp {name}", **server, **keys)
    add("secret", "mcp argument", kind="mcp", command=["echo", SECRET], method="health")
    add("secret", "emit told", kind="emit", event="a", data={"deep": [SECRET]})
    add("secret", "emit message", kind="emit", message=SECRET)
    add("missing", "artifact not there", kind="artifact", uri=SECRET)
    add("completed", "container used", kind="container", image="x", env={"TOKEN": SECRET}, stdin=SECRET)
    add("secret", "container argument", kind="container", image="x", args=[SECRET])


def a_docker(folder: Path) -> None:
    """In the place of the real one."""
    os.mkdir(folder / "bin")
    (folder / "bin/docker").write_text("#!/bin/sh\ncat > /dev/null\n")
    os.chmod(folder / "bin/docker", 0o755)
    os.environ["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"


def site() -> Site:
    found = Site()

    def echo(status: int) -> Any:
        return lambda asked: says({"you sent": asked.headers}, status)

    def late(asked: Asked) -> Answer:
        found.stop.wait(60)
        return Answer()

    found["/ok"] = says({"ok": True})
    found["/echo"], found["/fail"], found["/no"] = echo(200), echo(500), echo(418)
    found["/late"] = late
    found["/llm/chat/completions"] = says({"choices": [{"message": {"content": "ok"}}]})
    found["/echo/chat/completions"] = lambda asked: says({"choices": [{"message": {"content": str(asked.headers)}}]})
    found["/fail/chat/completions"] = echo(500)
    found["/no/chat/completions"] = lambda asked: says({"you sent": asked.body.decode()}, 418)
    return found


class Looking:
    """At what every process of this machine was started with, for as long as this goes on."""

    def __init__(self, fragments: list[bytes]) -> None:
        self.fragments, self.hits, self.looks, self._stop = fragments, 0, 0, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._stop.wait(0.02):
            self.looks += 1
            for each in os.listdir("/proc"):
                if each.isdigit():
                    self.hits += self._has(Path("/proc", each, "cmdline"))

    def _has(self, path: Path) -> bool:
        try:
            line = path.read_bytes()
        except OSError:
            return False
        return any(fragment in line for fragment in self.fragments)

    def __enter__(self) -> "Looking":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def playbook(step: dict[str, Any]) -> str:
    head = {"apiVersion": "refold/v1", "kind": "Playbook", "metadata": {"name": "one"}}
    return msgspec.json.encode({**head, "workflow": [step]}).decode()


async def main(folder: Path, postgres: str, fragments: list[bytes]) -> dict[str, Any]:
    runs = dict[str, Any]()
    a_docker(folder)
    own: dict[str, Any] = {"process_grace": 0.2, "private_addresses": True, "key_file": str(folder / "keys")}
    settings = Settings(processes=1, sweep_every=0.1, poll=0.1, **own)
    with Looking(fragments) as looking, served(site()) as address:
        async with open_process(db=folder / "refold.db", settings=settings) as process:

            async def work(name: str, plan: Plan) -> None:
                run = (await process.engine.options(name=f"run-{len(runs)}").start(plan)).id
                runs[name] = {"run": run, "ends": works_[name]["ends"]}
                await process.engine.wait(run)
                state = await process.engine.show(run)
                runs[name] |= {"status": state.status, "error": msgspec.to_builtins(state.error)}

            works_ = works(address, postgres, folder)
            async with asyncio.TaskGroup() as group:
                for name, each in works_.items():
                    group.create_task(work(name, read(playbook(each["step"]), "play.yaml", CATALOG).plan))
            for file in filter(Path.is_file, folder.glob("refold.db*")):
                shutil.copy(file, folder / f"open-{file.name}")
    return {"runs": runs, "looks": looking.looks, "hits": looking.hits}


if __name__ == "__main__":
    try:
        shown = asyncio.run(main(Path(sys.argv[1]), sys.argv[2], [bytes.fromhex(each) for each in sys.argv[3:]]))
    except RefoldError as error:
        sys.exit(str(error))
    sys.stdout.buffer.write(msgspec.json.encode(shown))
