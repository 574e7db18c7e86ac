"""Values in the text of a shell command: data wherever they stand, or refused."""

import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from refold.tools.shell_quoting import Unquotable, Value, quoted
from tests.tools.test_shell import metacharacters

SHELLS = [name for name in ("bash", "sh", "busybox") if shutil.which(name)]
SHELL = pytest.mark.parametrize("shell", SHELLS)
END = "\x02"  # what ends a value in what is printed


def output(shell: str, text: str) -> str:
    argv = [shell, "sh", "-s"] if shell == "busybox" else [shell, "-s"]
    done = subprocess.run(argv, input=text.encode(), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b""), (text, done.stderr)
    return done.stdout.decode()


def pieces(template: str, value: Any) -> list[str | Value]:
    """`@@` is where the value stands."""
    texts = template.split("@@")
    found: list[str | Value] = [texts[0]]
    for text in texts[1:]:
        found += [Value(value), text]
    return found


PLACES = {
    "bare": "printf '%s\\002' @@\n",
    "beside a word": "printf '%s\\002' <@@>\n".replace("<", "a").replace(">", "b"),
    "double": "printf '%s\\002' \"@@\"\n",
    "within double": "printf '%s\\002' \"a'@@'b\"\n",
    "single": "printf '%s\\002' '@@'\n",
    "within single": "printf '%s\\002' 'a\"@@\"b'\n",
    "assigned": "x=@@; printf '%s\\002' \"$x\"\n",
    "assigned in double": 'x="@@"; printf \'%s\\002\' "$x"\n',
    "in a substitution": "printf '%s\\002' \"$(printf '%s.' @@)\"\n",
    "double in a substitution": "printf '%s\\002' \"$(printf '%s.' \"@@\")\"\n",
    "single in a substitution": "x=$(printf '%s.' '@@'); printf '%s\\002' \"$x\"\n",
    "deep": "printf '%s\\002' \"$(x=\"$(printf '%s.' '@@')\"; (printf '%s' \"$x\"))\"\n",
    "after a comment": "# it's\nprintf '%s\\002' @@ # don't\n",
    "after escapes": "printf '%s\\002' a\\'\\\"\\ @@\n",
    "after expansions": "printf '%s\\002' \"${PATH:+}$(true)`true`$#\"@@\n",
    "after a sum": "printf '%s\\002' $((1 + (2)))@@\n",
    "after a case": "case a in a) printf '%s\\002' @@;; esac\n",
}
AROUND = {"beside a word": ("a", "b"), "within double": ("a'", "'b"), "within single": ('a"', '"b')}
AROUND |= {"after escapes": ("a'\" ", ""), "after expansions": ("0", ""), "after a sum": ("3", "")}
DOTTED = ("in a substitution", "double in a substitution", "single in a substitution", "deep")


def expected(place: str, value: str) -> str:
    before, after = AROUND.get(place, ("", ""))
    return before + value + after + ("." if place in DOTTED else "") + END


@SHELL
@pytest.mark.parametrize("place", PLACES)
def test_500_texts_full_of_metacharacters_come_out_as_they_are(shell: str, place: str) -> None:
    texts = metacharacters(500)
    script = "".join(quoted(pieces(PLACES[place], text)) for text in texts)
    assert output(shell, script) == "".join(expected(place, text) for text in texts)


@SHELL
@pytest.mark.parametrize("head", ["<<EOF", "<<'EOF'", '<< "EOF"', "<<-EOF", "<<\\EOF"])
def test_they_do_so_in_here_documents(shell: str, head: str) -> None:
    texts = metacharacters(500)
    template = f"cat {head}\n@@ and 'it'\nEOF\nprintf '\\002'\n"
    script = "".join(quoted(pieces(template, text)) for text in texts)
    tabs = [text.replace("\n\t", "\n").lstrip("\t") if head == "<<-EOF" else text for text in texts]
    found = output(shell, script)
    if head != "<<-EOF":  # there, tabs at the beginning of a line are the shell's to take away
        assert found == "".join(f"{text} and 'it'\n{END}" for text in tabs)
    assert found.count(END) == 500


@SHELL
def test_no_value_of_many_is_run_wherever_it_stands(shell: str, tmp_path: Any) -> None:
    chance, trap = random.Random(3), tmp_path / "trap"
    attacks = [f"touch {trap}", f"$(touch {trap})", f"`touch {trap}`", f"; touch {trap};", f"\ntouch {trap}\n"]
    attacks += [f"' ; touch {trap} ; '", f'" ; touch {trap} ; "', f"\\'; touch {trap} #", f"EOF\ntouch {trap}\n"]
    attacks += [f"| touch {trap}", f"&& touch {trap}", f"a[$(touch {trap})]", f"}}; touch {trap}", f")) ; touch {trap}"]
    parts = ["echo @@", '"@@"', "'@@'"]
    parts += [' "$(echo @@)" ', "\\", "$", "`", "${x:-@@}", "$((@@))", "# @@\n", "\n", "(", ")"]
    parts += ["cat <<EOF\n@@\nEOF\n", "cat <<'EOF'\n@@\n$(id)\nEOF\n", "case x in @@) ;; esac", "; ", "$'@@'", "((@@))"]
    for _ in range(400):
        template = "".join(chance.choices(parts, k=chance.randint(1, 6)))
        try:
            text = quoted(pieces(template, chance.choice(attacks)))
        except Unquotable:
            continue
        argv = [shell, "sh", "-c", text] if shell == "busybox" else [shell, "-c", text]
        subprocess.run(argv, capture_output=True, check=False, stdin=subprocess.DEVNULL, timeout=60, cwd=tmp_path)
        assert not trap.exists(), (template, text)


@pytest.mark.parametrize(
    ("template", "value", "why"),
    [
        ("echo \\@@", "x", "a value stands behind a backslash"),
        ('echo "a\\@@"', "x", "a value stands behind a backslash"),
        ("echo $@@", "x", "a value stands behind a `$`"),
        ('echo "$@@"', "(id)", "a value stands behind a `$`"),
        ("echo `echo @@`", "x", "a value stands inside backticks; write $(...)"),
        ("echo ${x:-@@}", "x", "a value stands inside `${...}`"),
        ('echo "${x:-"a"}" @@', "x", "a value stands inside `${...}`"),
        ("echo $'a' @@", "x", "a value stands after `$'...'`"),
        ("echo $((1 + @@))", "a[$(id)]", "a value stands in arithmetic"),
        ("((x = @@))", "a[$(id)]", "a value stands in arithmetic"),
        ('echo "$(case a in a) echo @@;; esac)"', "x", "a value stands after a `case` inside $(...)"),
        ("cat <<@@\n", "x", "a value stands behind a `<<`"),
        ("cat <<EOF\n@@\nEOF\n", "a\nEOF\nid", "a value would end the here-document 'EOF'"),
        ("cat <<EOF\nE@@\nEOF\n", "OF\nid", "a value would end the here-document 'EOF'"),
        ("cat <<EOF\n@@\nEOF\n", "EOF", "a value would end the here-document 'EOF'"),
        ("cat <<'EOF'\n@@\nEOF\n", "EOF\nid\n", "a value would end the here-document 'EOF'"),
        ("cat <<-EOF\n\t@@\nEOF\n", "EOF\nid\n", "a value would end the here-document 'EOF'"),
        ("cat <<EOF\n$(echo @@)\nEOF\n", "a\nEOF\nid", "a value might end the here-document 'EOF'"),
        ("cat <<EOF\n\\\n@@\nEOF\n", "x", "a value stands behind a line that a backslash ends"),
        ("echo @@", "a\0b", "a value has a NUL character"),
    ],
)
def test_where_no_quoting_helps_a_value_is_refused(template: str, value: str, why: str) -> None:
    with pytest.raises(Unquotable) as caught:
        quoted(pieces(template, value))
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize(
    ("template", "value", "text"),
    [
        ("echo @@", None, "echo ''"),
        ("echo @@", True, "echo 'true'"),
        ("echo @@", 1.5, "echo '1.5'"),
        ("echo @@", ["a", {"b": "ü"}], 'echo \'["a", {"b": "ü"}]\''),
        ("echo $((@@ + 1))", 41, "echo $((41 + 1))"),
        ("((x = @@))", "-3", "((x = -3))"),
        ("# @@\necho", "a\nid", "# a id\necho"),
        ("echo '@@'", "it's", "echo 'it'\\''s'"),
        ('echo "@@"', '$x"', 'echo "\\$x\\""'),
        ("cat <<<@@", "x", "cat <<<'x'"),
        ("echo a#b '@@'", "'", "echo a#b ''\\'''"),
        ("echo a \\\n # it's\n@@", "x", "echo a \\\n # it's\n'x'"),
        ("cat <<A <<'B'\n@@\nA\n@@\nB\necho @@", "$x", "cat <<A <<'B'\n\\$x\nA\n$x\nB\necho '$x'"),
        ("cat <<EOF\nEOF$(echo)\n@@\nEOF\n@@", "$x", "cat <<EOF\nEOF$(echo)\n\\$x\nEOF\n'$x'"),
    ],
)
def test_a_value_takes_the_form_of_its_place(template: str, value: Any, text: str) -> None:
    assert quoted(pieces(template, value)) == text


def test_text_without_values_stays_as_it_is() -> None:
    texts: Sequence[str | Value] = ["echo `", "x` $'\\n' ${y:-'", "'} <<"]
    assert quoted(texts) == "echo `x` $'\\n' ${y:-''} <<"


@pytest.mark.parametrize(
    "text", ['[[ "{}" -eq 1 ]] && echo yes', "[[ 1 -gt {} ]] || true", "let x={} && echo $x", "declare -i n={}"]
)
def test_where_bash_computes_only_a_whole_number_may_stand(text: str, tmp_path: Path) -> None:
    before, after = text.split("{}")
    assert quoted([before, Value(7), after]) == text.format("7") or "7" in quoted([before, Value(7), after])
    with pytest.raises(Unquotable, match="in arithmetic"):
        quoted([before, Value(f"a[$(touch {tmp_path}/x)]"), after])
