"""Generated NoETL texts with hostile values, given to real shells and databases: no value is ever run.

The judge knows nothing of quoting. A value that is run leaves a mark: a file in the folder of the shell, a row in a
table of the database. Where a text is made of whole places only, the values must also come out as they went in. Other
texts are damaged at random, and only the marks count: whoever misreads such a text by one character runs a value.
"""

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count as count_from
from pathlib import Path
from typing import Any

import pytest

from refold.core.expressions import CannotEvaluate
from refold.core.pipeline import Task
from refold.errors import ToolFailed
from refold.templates import Templates
from refold.tools.pipeline.render import QUOTED
from refold.tools.sql.text import Style
from tests.growth import grows_linearly
from tests.tools.databases import KINDS, Database, opened

PROOF = 2000  # texts for each shell and each database
USUAL = 120
FIRST = int(os.environ.get("REFOLD_FIRST_SEED", "1000"))
SHELLS = ("bash", "dash")
MARK = "ran"
AT_ONCE = 20  # statements between two looks at the marks
NOISE = ["'", '"', "\\", "$", "`", "(", ")", "{", "}", "[", "]", "#", ";", "\n", " ", "<", ">", "&", "|", "-", "/", "*"]
NOISE += [
    "\r",
    "\t",
    "$(",
    "))",
    "<<",
    "''",
    "$$",
    "--",
    "/*",
    "*/",
    "E'",
    "\\\n",
    "((",
    "[[ ",
    " ]]",
    "'v'",
    '"v"',
    "{{ v }}",
]


def rendered(kind: str, name: str, given: Any, value: Any) -> Any:
    """As the worker does it. Raises ToolFailed."""
    templates = Templates(undefined="chainable")
    how = "shell" if kind == "shell" else "sql"
    made = QUOTED[how](
        Task(name="t", kind=kind), name, lambda text: templates.pieces(text, {"v": value}), {name: given}
    )
    return made[name]


def damaged(chance: random.Random, text: str) -> str:
    """A few characters more or less, never within an expression."""
    text = text.replace("{{ v }}", "\3")
    for _ in range(chance.randint(1, 3)):
        at = chance.randint(0, len(text))
        if chance.random() < 0.3:
            text = text[:at] + text[at + chance.randint(1, 3) :]
        else:
            text = text[:at] + chance.choice(NOISE).replace("{{ v }}", "\3") + text[at:]
    return text.replace("\3", "{{ v }}")


# Shells: what a text is made of, and what it prints of its value. `None`: whatever it does, nothing is run.

SHELL_PARTS: dict[str, Callable[[str], str] | None] = {
    "printf '%s\\002' {{ v }}": lambda v: f"{v}\2",
    "printf '%s\\002' \"{{ v }}\"": lambda v: f"{v}\2",
    "printf '%s\\002' '{{ v }}'": lambda v: f"{v}\2",
    "printf '%s\\002' a{{ v }}b": lambda v: f"a{v}b\2",
    "printf '%s\\002' \"a '{{ v }}' $NOTHING b\"": lambda v: f"a '{v}'  b\2",
    "x={{ v }}; printf '%s\\002' \"$x\"": lambda v: f"{v}\2",
    'x="$(printf \'%s.\' "{{ v }}")"; printf \'%s\\002\' "$x"': lambda v: f"{v}.\2",
    "# it's a comment": lambda v: "",
    "true 'it is' \"it's\" \\'": lambda v: "",
    "case a in a) printf '%s\\002' {{ v }};; esac": lambda v: f"{v}\2",
    "f() { printf '%s\\002' \"$1\"; }; f {{ v }}": lambda v: f"{v}\2",
    "if [ {{ v }} = {{ v }} ]; then printf '%s\\002' {{ v }}; fi": None,
    "printf x > /dev/null; i=0; i=$((i+1))": lambda v: "",
    "cat <<EOF\n{{ v }}\nEOF": None,
    "cat <<'EOF'\nit's\nEOF": lambda v: "it's\n",
    'cat <<-E"O"F\n{{ v }}\nEOF': None,
    "echo $(( {{ v }} ))": None,
    "n={{ v }}; (( n > 5 ))": None,
    "n={{ v }}; [[ $n -gt 5 ]]": None,
    "[[ -v {{ v }} ]]": None,
    "arr[{{ v }}]=1": None,
    "declare -i n={{ v }}": None,
    "printf -v {{ v }} x": None,
    "read {{ v }} < /dev/null": None,
    "unset {{ v }}": None,
    "let n={{ v }}": None,
    "for((i={{ v }};i<1;i++)); do :; done": None,
    "echo $[{{ v }}]": None,
    'bash -c "echo {{ v }}"': None,
    "eval echo {{ v }}": None,
    "echo {{ v }} | sh": None,
    'x={{ v }}; sh -c "echo $x"': None,
    'awk "BEGIN {print {{ v }}}"': None,
    'echo a | sed "s/a/{{ v }}/"': None,
    'python3 -c "print({{ v }})"': None,
    "echo `echo {{ v }}`": None,
    "echo ${x:-{{ v }}}": None,
    "x={{ v }}; echo ${x@P} ${!x}": None,
    "echo $'a' {{ v }}": None,
    "source /dev/stdin <<< {{ v }}": None,
    'trap "{{ v }}" EXIT': None,
    "PS4={{ v }}; set -x; true": None,
    "RANDOM={{ v }}": None,
    "a=({{ v }}); echo ${a[0]}": None,
    "echo a 2>&1{{ v }}": None,
    "{{ v }}": None,
    "x={{ v }}; $x": None,
    "echo @({{ v }}|b)": None,
    'echo "a\n{{ v }}"': None,
    "echo 'a' # {{ v }}": None,
    "printf '%s\\002' {{ v }} | xargs -0 printf %s": lambda v: f"{v}\2",
    "printf %s {{ v }} | xargs -0 -I% sh -c 'echo %'": None,
    "printf %s {{ v }} | xargs -0 --replace=% bash -c %": None,
    "echo {{ v }} | xargs -n 2 env": None,
    "echo {{ v }} | xargs -I%": None,
    "mkdir -p {{ v }}; find . -exec sh -c 'echo {}' \\;": None,
    "find . -maxdepth 0 -exec sh -c {{ v }} \\;": None,
    "find . -maxdepth 0 -exec {{ v }} \\;": None,
    "tar cf /dev/null --checkpoint=1 --checkpoint-action=exec={{ v }} /dev/null": None,
    "tar cf /dev/null --checkpoint=1 --checkpoint-action exec={{ v }} /dev/null": None,
    "tar cf /dev/null -I {{ v }} /dev/null": None,
    "tar cf /dev/null {{ v }} /dev/null": None,
    'x={{ v }}; tar cf /dev/null "$x" /dev/null': None,
    "echo {{ v }} | xargs find . -maxdepth 0": None,
    "git ls-remote {{ v }} .": None,
    "tar cf /dev/null --use-compress-program={{ v }} /dev/null": None,
    "git -c alias.x={{ v }} x": None,
    "git -c {{ v }} x": None,
    "rsync -e {{ v }} a b:": None,
    "ssh -o ProxyCommand={{ v }} b": None,
    "scp -o ProxyCommand={{ v }} a b:": None,
    "env -S {{ v }}": None,
    'env -S "sh -c {{ v }}"': None,
    "env -S{{ v }}": None,
}
TOUCH = f"touch {MARK}"
SHELL_VALUES = [
    *(TOUCH, f"$({TOUCH})", f"`{TOUCH}`", f"; {TOUCH};", f"\n{TOUCH}\n", f"' ; {TOUCH} ; '", f'" ; {TOUCH} ; "'),
    *(
        f"\\'; {TOUCH} #",
        f'\\"; {TOUCH} #',
        f"EOF\n{TOUCH}\n",
        f"'\nEOF\n{TOUCH}\n",
        f"| {TOUCH}",
        f"&& {TOUCH}",
        f"a[$({TOUCH})]",
    ),
    *(f"}}; {TOUCH}", f")) ; {TOUCH}", f"); {TOUCH}; (", f"*/ {TOUCH}", f"x=a[$({TOUCH})]", f"$[a[$({TOUCH})]]"),
    *(
        f'a["$({TOUCH})"]',
        f'system("{TOUCH}")',
        f"1e {TOUCH}\n",
        f"__import__('os').system('{TOUCH}')",
        f"\\$({TOUCH})",
    ),
    *(
        f"'$({TOUCH})'",
        f'"$({TOUCH})"',
        f"a\\\n{TOUCH}",
        f"\r{TOUCH}\r",
        f"é\u00a0$({TOUCH})",
        f"{{a,$({TOUCH})}}",
        f"!{TOUCH}",
    ),
    *(f"/e;e {TOUCH}\n;", f"<({TOUCH})", f"$'\\n{TOUCH}'", f"-c {TOUCH}", f"1+a[$({TOUCH})]", f"' EOF\n{TOUCH}"),
    *(
        f"alias.x=!{TOUCH}",
        f"exec={TOUCH}",
        f"-exec {TOUCH} ;",
        f"--use-compress-program={TOUCH}",
        f"--upload-pack={TOUCH}",
    ),
]


def shell_texts(seed: int) -> Iterator[tuple[list[str], str, str | None]]:
    """Lines for one shell, the value in them, and what must be printed, if that is known."""
    for number in count_from(0):
        chance = random.Random(seed * 100_003 + number)
        value = chance.choice(SHELL_VALUES)
        usual = [part for part, prints in SHELL_PARTS.items() if prints is not None]
        parts = chance.choices(usual if chance.random() < 0.5 else list(SHELL_PARTS), k=chance.randint(1, 4))
        known = [SHELL_PARTS[part] for part in parts]
        printed = "".join(prints(value) for prints in known if prints) if all(known) else None
        lines = [chance.choice(["\n", "\n\n"]).join(parts)] if chance.random() < 0.5 else parts
        if chance.random() < 0.5:
            lines, printed = [damaged(chance, line) for line in lines], None
        if chance.random() < 0.2 and len(lines) == 1:
            lines, printed = lines[0].split("\n"), None  # a list of lines that are not complete by themselves
        yield lines, value, printed


def run_shell_texts(shell: str, folder: Path, count: int) -> tuple[int, int, int]:
    """How many were refused, quoted, and compared with what they must print."""
    path = shutil.which(shell)
    assert path is not None, f"{shell} is not here, and must be tried"
    refused = quoted = compared = 0
    for lines, value, printed in shell_texts(FIRST):
        if refused + quoted == count:
            break
        if not any("{{" in line for line in lines):
            continue
        try:
            argv = rendered("shell", "command", {"shell": path, "lines": lines}, value)
        except ToolFailed:
            refused += 1
            continue
        except CannotEvaluate:
            continue  # a brace too many: no template
        quoted += 1
        here = folder / str(quoted)
        here.mkdir()
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(here)}
        done = subprocess.run(
            argv, cwd=here, env=env, capture_output=True, check=False, stdin=subprocess.DEVNULL, timeout=60
        )
        assert not (here / MARK).exists(), f"a value was run by {shell}: {lines!r} with {value!r} became {argv!r}"
        if printed is not None:
            assert done.stdout.decode() == printed, (
                f"{shell}: {lines!r} with {value!r} became {argv!r}: {done.stderr!r}"
            )
            compared += 1
        shutil.rmtree(here)
    return refused, quoted, compared


# Databases: selected expressions, and what each gives for its value.

SAME: Callable[[Any], Any] = lambda value: value  # noqa: E731
SQL_PARTS: dict[str, tuple[tuple[Style, ...], Callable[[str], Any]]] = {
    "'{{ v }}'": (KINDS, SAME),
    "'a ''{{ v }}'' b'": (KINDS, lambda v: f"a '{v}' b"),
    "coalesce(null, '{{ v }}')": (KINDS, SAME),
    "coalesce(null, {{ v }})": (KINDS, SAME),
    "case when 1 = 1 then '{{ v }}' else {{ v }} end": (KINDS, SAME),
    "'it''s'": (KINDS, lambda v: "it's"),
    "1 /* it's ' */": (KINDS, lambda v: 1),
    "1 -- it's '\n": (KINDS, lambda v: 1),
    '1 as "a {{ v }}"': (KINDS, lambda v: 1),
    "E'{{ v }}'": (("duckdb", "postgres"), SAME),
    "E'it\\'s {{ v }}\\\\'": (("duckdb", "postgres"), lambda v: f"it's {v}\\"),
    "$j${{ v }}$j$": (("duckdb", "postgres"), SAME),
    "$${{ v }}$$": (("duckdb", "postgres"), SAME),
    "$$it's ' $x$$": (("duckdb", "postgres"), lambda v: "it's ' $x"),
    "/* /* */ ' */ '{{ v }}'": (("duckdb", "postgres"), SAME),
    "-- it's\r '{{ v }}'": (("duckdb", "postgres"), SAME),
    "/* /* */ '{{ v }}'": (("sqlite",), SAME),
    "-- it's\r ' \n '{{ v }}'": (("sqlite",), SAME),
    "`x{{ v }}` from (select 1 as `x{{ v }}`) q": (("sqlite",), lambda v: 1),
}
OTHER_SQL = [
    "select 1 -- {{ v }}\n",
    "select /* {{ v }} */ 1",
    "do $$ begin perform '{{ v }}'; end $$",
    "select * from t where a = 1 {{ v }}",
    "select * from {{ v }}",
    "insert into t values ('{{ v }}')",
    "select 1 from t order by {{ v }}",
    "select E'\\{{ v }}'",
    "select 'a'\n'{{ v }}'",
    "select E'a'\n'{{ v }}'",
    "select U&'{{ v }}'",
    "select X'{{ v }}'",
    "select ${{ v }}$a$",
    "select * from query('{{ v }}')",
    "update t set a = '{{ v }}' where a = {{ v }}",
    "select 1 where 1 in ({{ v }}) or 'a' in ('{{ v }}')",
    "create table if not exists u (a text default '{{ v }}')",
    "select {{ v }}{{ v }}",
    "select 5-{{ v }}",
]
INSERT = f"insert into {MARK} values (1)"
SQL_VALUES = [
    *(f"'; {INSERT}; --", f"'); {INSERT}; --", f"\\'; {INSERT}; --", f"''; {INSERT}; --", f"; {INSERT}; --", INSERT),
    *(f"*/ {INSERT}; /*", f"*/; {INSERT}; --", f"\n; {INSERT}; --", f"\r; {INSERT}; --", f"$$; {INSERT}; --"),
    *(f"$j$; {INSERT}; --", f'"; {INSERT}; --', f"`; {INSERT}; --", f"]; {INSERT}; --", f"\\\\'; {INSERT}; --"),
    *(f"\\x27; {INSERT}; --", f"\\0027; {INSERT}; --", f"1; {INSERT}", f"1) or 1=1; {INSERT}; --", f"-5; {INSERT}; --"),
    *(f"' || (select 1); {INSERT}; --", f"e'; {INSERT}; --", f"'\n'; {INSERT}; --", f"t; {INSERT}", "t", "a','b"),
    *(f"*/ */; {INSERT}; --", f"/* '; {INSERT}; --", f"-- \n'; {INSERT}; --", f"ü\u00a0'; {INSERT}; --", "$1", "?"),
    *(f"end $$; {INSERT}; do $$ begin", "\\"),
]


def sql_texts(seed: int, kind: Style) -> Iterator[tuple[str, str, list[Any] | None]]:
    fitting = [part for part, (kinds, _) in SQL_PARTS.items() if kind in kinds]
    for number in count_from(0):
        chance = random.Random(seed * 100_019 + number)
        value = chance.choice(SQL_VALUES)
        parts = chance.choices([part for part in fitting if " from " not in part], k=chance.randint(1, 4))
        text = f"select {', '.join(parts)}"
        given: list[Any] | None = [SQL_PARTS[part][1](value) for part in parts]
        if chance.random() < 0.4:
            text, given = chance.choice([chance.choice(OTHER_SQL), f"{text}; {chance.choice(OTHER_SQL)}"]), None
        if chance.random() < 0.5:
            text, given = damaged(chance, text), None
        yield text, value, given


async def run_sql_texts(database: Database, count: int) -> tuple[int, int, int]:
    for name in (MARK, "t", "u"):
        await database.run(f"drop table if exists {name}")
    await database.run(f"create table {MARK} (a integer)")
    await database.run("create table t (a text)")
    recent: list[str] = []
    refused = quoted = compared = 0
    for text, value, given in sql_texts(FIRST, database.kind):
        if refused + quoted == count:
            break
        if text.replace("{{ v }}", "").strip() == "" or "{{" not in text:
            continue
        try:
            statement = rendered(database.kind, "query", text, value)
        except ToolFailed:
            refused += 1
            continue
        except CannotEvaluate:
            continue  # a brace too many: no template
        quoted += 1
        try:
            rows = await database.rows(statement)
        except (ToolFailed, KeyError) as error:  # no such table, or no rows
            rows = None
            assert given is None, f"{text!r} with {value!r} became {statement!r}: {error}"
        recent.append(f"{text!r} with {value!r} became {statement!r}")
        if len(recent) == AT_ONCE:
            await no_marks(database, recent)
        if given is not None:
            assert rows == [given], f"{text!r} with {value!r} became {statement!r}"
            compared += 1
    await no_marks(database, recent)
    return refused, quoted, compared


async def no_marks(database: Database, recent: list[str]) -> None:
    marks = await database.rows(f"select count(*) from {MARK}")
    assert marks == [[0]], f"a value was run by {database.kind}, one of these: {recent}"
    recent.clear()


def told(what: str, found: tuple[int, int, int]) -> None:
    refused, quoted, compared = found
    share = refused / max(refused + quoted, 1)
    print(f"{what}: {refused} texts refused, {quoted} quoted ({share:.0%} refused), {compared} compared, 0 values run")
    assert refused and quoted and compared, "the texts must be of both kinds, or nothing is shown"


@pytest.mark.parametrize("shell", SHELLS)
def test_no_shell_runs_a_value(shell: str, tmp_path: Path) -> None:
    told(shell, run_shell_texts(shell, tmp_path, USUAL))


@pytest.mark.parametrize("kind", KINDS)
async def test_no_database_runs_a_value(kind: Style, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    async with opened(kind, where(kind, tmp_path, request)) as database:
        told(kind, await run_sql_texts(database, USUAL))


@pytest.mark.proof
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("shell", SHELLS)
def test_no_shell_runs_a_value_in_2000_texts(shell: str, tmp_path: Path) -> None:
    told(shell, run_shell_texts(shell, tmp_path, PROOF))


@pytest.mark.proof
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", KINDS)
async def test_no_database_runs_a_value_in_2000_texts(
    kind: Style, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with opened(kind, where(kind, tmp_path, request)) as database:
        told(kind, await run_sql_texts(database, PROOF))


def where(kind: Style, folder: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"url": request.getfixturevalue("postgres")} if kind == "postgres" else {"database": str(folder / "x.db")}


def test_the_judge_sees_a_value_that_is_run(tmp_path: Path) -> None:
    """Put in as plain text, most of these values are run: the marks are real."""
    ran = 0
    for number, value in enumerate(SHELL_VALUES):
        here = tmp_path / str(number)
        here.mkdir()
        text = f'n=\'{value}\'; echo "{value}"; eval "echo $n"; echo {value}'
        subprocess.run(["bash", "-c", text], cwd=here, capture_output=True, check=False, stdin=subprocess.DEVNULL)
        ran += (here / MARK).exists()
    assert ran > len(SHELL_VALUES) / 2


def test_a_variable_that_is_also_set_to_a_value_is_not_computed_with() -> None:
    """A number at first, and a value later: what bash computes with is the value."""
    with pytest.raises(ToolFailed, match="computes with `n`"):
        rendered("shell", "command", {"shell": "bash", "lines": ["n=0; echo $((n)); n={{ v }}"]}, "a[$(id)]")


@pytest.mark.parametrize("kind", ["sql", "python"])
def test_values_that_never_close_are_read_in_time_that_grows_with_the_text(kind: str) -> None:
    def quote(size: int) -> None:
        with suppress(CannotEvaluate, ToolFailed):
            QUOTED[kind](Task("t", "duckdb"), "code", lambda text: [text], {"code": "x = 1 " + "{{ " * size})

    assert grows_linearly(quote, 4_000)
