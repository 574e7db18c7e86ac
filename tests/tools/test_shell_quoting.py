"""Values in the text of a shell command: one quoted word, or refused."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from refold.tools.noetl_text import HOLE, Misplaced
from refold.tools.shell.noetl_text import places_of, written
from tests.tools.test_shell import metacharacters

SHELLS = [name for name in ("bash", "dash", "busybox") if shutil.which(name)]
SHELL = pytest.mark.parametrize("shell", SHELLS)
END = "\x02"  # what ends a value in what is printed


def quoted(template: str, value: Any) -> str:
    """`@@` is where the value stands, and a line of three dashes begins the next text of a list."""
    texts = template.replace("@@", HOLE).split("\n---\n")
    places = iter(places_of(texts))
    return re.sub(HOLE, lambda _: written(next(places), value), "\n".join(texts))


def output(shell: str, text: str) -> str:
    argv = [shell, "sh", "-s"] if shell == "busybox" else [shell, "-s"]
    done = subprocess.run(argv, input=text.encode(), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b""), (text, done.stderr)
    return done.stdout.decode()


PLACES = {
    "bare": "printf '%s\\002' @@\n",
    "beside a word": "printf '%s\\002' a@@b\n",
    "double": "printf '%s\\002' \"@@\"\n",
    "within double": "printf '%s\\002' \"a'@@'b\"\n",
    "behind a variable": "printf '%s\\002' \"$NOTHING@@\"\n",
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
    "after expansions": "printf '%s\\002' \"${PATH:+}$(true)$#\"@@\n",
    "after a sum": "printf '%s\\002' $((1 + (2)))@@\n",
    "after a case": "case a in a) printf '%s\\002' @@;; esac\n",
    "after a line that goes on": "printf '%s\\002' \\\n  @@\n",
    "given to a function": "f() { printf '%s\\002' \"$1\"; }; f @@\n",
    "given to another shell": 'sh -c \'printf "%s\\\\002" "$1"\' sh @@\n',
}
AROUND = {"beside a word": ("a", "b"), "within double": ("a'", "'b"), "within single": ('a"', '"b')}
AROUND |= {"after escapes": ("a'\" ", ""), "after expansions": ("0", ""), "after a sum": ("3", "")}
DOTTED = ("in a substitution", "double in a substitution", "single in a substitution", "deep")


def expected(place: str, value: str) -> str:
    before, after = AROUND.get(place, ("", ""))
    return before + value + after + ("." if place in DOTTED else "") + END


@SHELL
@pytest.mark.parametrize("place", PLACES)
def test_texts_full_of_metacharacters_come_out_as_they_are(shell: str, place: str) -> None:
    texts = metacharacters(40 if "another shell" in place else 500)
    script = "".join(quoted(PLACES[place], text) for text in texts)
    assert output(shell, script) == "".join(expected(place, text) for text in texts)


REFUSED = {
    "a here-document": ("cat <<EOF\n@@\nEOF", "a here-document"),
    "a here-document whose end is quoted": ('cat <<E"O"F\n@@\nEOF', "a here-document"),
    "a here-document over a list of lines": ("cat <<EOF\n---\n@@\n---\nEOF", "a here-document"),
    "a here-string": ("cat <<< @@", "a here-string"),
    "a quote over a list of lines": ("echo 'a\n---\n@@\n---\nb'", "a quote is not closed"),
    "double quotes over a list of lines": ('echo "a\n---\n@@"', "a quote or a `$(` is not closed"),
    "quotes over several lines": ('echo "a\n@@"', "several lines"),
    "single quotes over several lines": ("echo 'a\n@@'", "several lines"),
    "a comment": ("echo # @@", "in a comment"),
    "behind a backslash": ("echo \\@@", "behind a backslash"),
    "behind a backslash in quotes": ('echo "\\@@"', "behind a backslash"),
    "behind a dollar": ("echo $@@", "behind a `$`"),
    "behind a dollar in quotes": ('echo "$@@"', "behind a `$`"),
    "backticks": ("echo `echo @@`", "backticks"),
    "after backticks": ("echo `id`; echo @@", "backticks"),
    "a default": ("echo ${x:-@@}", "`${...}`"),
    "after an indirection": ("x=a; echo ${!x} @@", "`${...}`"),
    "after a prompt": ("x=@@; echo ${x@P}", "`${...}`"),
    "a pattern with a hash": ("echo ${x#'} @@ '}", "`${...}`"),
    "ANSI quotes": ("echo $'a' @@", "`$'...'`"),
    "a line that goes on within a sign": ("echo $\\\n(id) @@", "`$'...'`"),
    "a sum": ("echo $((@@))", "in arithmetic"),
    "an old sum": ("echo $[@@]", "`$[...]`"),
    "a sum as a command": ("((x = @@))", "in arithmetic"),
    "for((": ("for((i=0;i<@@;i++)); do :; done", "in parentheses"),
    "if((": ("if((@@)); then :; fi", "in parentheses"),
    "while((": ("while((@@)); do :; done", "in parentheses"),
    "a variable that is computed with": ("n=@@; (( n > 5 ))", "computes with `n`"),
    "another variable that is computed with": ("n=@@; m=$n; echo $((m+1))", "computes with `m`"),
    "a variable of a loop": ("for n in @@; do echo $((n)); done", "computes with `n`"),
    "an argument of a function": ("f() { echo $(($1)); }; f @@", "computes with `1`"),
    "what is read": ("echo @@ | while read n; do echo $((n)); done", "computes with `n`"),
    "a subscript": ("arr[@@]=1", "a subscript"),
    "a subscript with a space": ("arr[ @@ ]=1", "a subscript"),
    "a list": ("a=(@@)", "in parentheses"),
    "a pattern": ("echo @(a|@@)", "in parentheses"),
    "a comparison": ("[[ 5 -gt -@@ ]]", "where bash computes"),
    "a comparison of a variable": ("n=@@; [[ $n -gt 5 ]]", "where bash computes"),
    "a comparison behind another": ("[[ a == b && $x -eq @@ ]]", "where bash computes"),
    "whether a name is set": ("[[ -v @@ ]]", "where bash computes"),
    "whether a name is set, for test": ("[ -v @@ ]", "which computes"),
    "declare -i": ("declare -i n=@@", "`declare` that does more"),
    "typeset -i": ("typeset -i n; n=@@", "`typeset` that does more"),
    "a declared name": ("export @@", "`export` that does more"),
    "printf -v": ("printf -v @@ x", "`printf`, where names"),
    "read": ("read @@", "`read`, where names"),
    "unset": ("unset @@", "`unset`, where names"),
    "unset of a variable": ('x=@@; unset "$x"', "`unset`, where names"),
    "let": ("let x=@@", "`let`"),
    "eval": ("eval echo @@", "`eval`"),
    "eval of a variable": ('x=@@; eval "echo $x"', "`eval`"),
    "bash -c": ('bash -c "echo @@"', "in a program for `bash`"),
    "bash -c behind an option": ("bash -c +x @@", "in a program for `bash`"),
    "a script behind an option": ("bash +x @@", "in a program for `bash`"),
    "sh -c of a variable": ('x=@@; sh -c "echo $x"', "in a program for `sh`"),
    "sh -c in a container": ('docker exec c sh -c "echo @@"', "in a program for `sh`"),
    "python -c": ('python3 -c "print(@@)"', "in a program for `python3`"),
    "awk": ("awk '{print @@}'", "in a program for `awk`"),
    "sed": ("sed 's/a/@@/' f", "in a program for `sed`"),
    "jq": ("jq '.@@' f", "in a program for `jq`"),
    "ssh": ("ssh host ls @@", "in a program for `ssh`"),
    "psql": ("psql -c \"select '@@'\"", "in a program for `psql`"),
    "xargs with a shell": ("echo @@ | xargs -I{} sh -c 'echo {}'", "with `xargs` that puts"),
    "xargs with a mark of its own": ("echo @@ | xargs -n 1 -I% sh -c 'echo %'", "with `xargs` that puts"),
    "xargs with a mark that follows": ("echo @@ | xargs -0I % sh -c 'echo %'", "with `xargs` that puts"),
    "xargs with a mark in a long option": ("echo @@ | xargs --replace=% bash -c %", "with `xargs` that puts"),
    "xargs with a mark as program": ("echo @@ | xargs -I% %", "with `xargs` that puts"),
    "xargs with a language": ("echo @@ | xargs sed", "in a program for `sed`"),
    "xargs with a starter": ("echo @@ | xargs -n 1 env", "in a program for `env`"),
    "xargs with options": ("echo @@ | xargs find", "in a program for `find`"),
    "find with a shell": ("mkdir @@; find . -exec sh -c 'echo {}' \\;", "in a program for `sh`"),
    "find with a program": ("find . -exec @@ \\;", "in an option that names a program"),
    "an action of tar": ("tar c --checkpoint=1 --checkpoint-action=exec=@@ .", "in an option that names a program"),
    "a program behind an option": ("tar x --to-command @@ -f a", "in an option that names a program"),
    "an alias of git": ("git -c alias.x=@@ x", "in an option that names a program"),
    "a setting of git": ("git -c @@ log", "in an option that names a program"),
    "a shell of rsync": ("rsync -e @@ a b:", "in an option that names a program"),
    "a proxy of scp": ("scp -o ProxyCommand=@@ a b:", "in an option that names a program"),
    "a variable as program of an option": ('x=@@; find . -exec "$x" \\;', "in an option that names a program"),
    "a pipe into a shell": ("echo @@ | sh", "in a program for `sh`"),
    "a pipe into a group with a shell": ("echo @@ | { cat; sh; }", "in a program for `sh`"),
    "a pipe into bc": ('n=@@; echo "$n" | bc', "in a program for `bc`"),
    "a file for a shell": ("sh < @@", "in a program for `sh`"),
    "a process substitution": ("source <(echo @@)", "`<(...)`"),
    "source": (". @@", "in a program for `.`"),
    "trap": ('trap "echo @@" EXIT', "in a program for `trap`"),
    "the program": ("@@ a", "where a program is named"),
    "the whole": ("@@", "where a program is named"),
    "the program behind sudo": ("sudo @@ a", "in a program for `sudo`"),
    "the program behind an option": ("sudo -u x @@", "in a program for `sudo`"),
    "a variable as program": ("x=@@; $x", "where a program is named"),
    "PATH": ("PATH=@@:$PATH; ls", "in `PATH=`"),
    "PS4": ("PS4=@@; set -x; ls", "in `PS4=`"),
    "RANDOM": ("RANDOM=@@", "in `RANDOM=`"),
    "a copy of a stream": ("echo a 2>&1@@", "which bash expands twice"),
    "the end of a stream before a program": ("<&-bash -c '@@'", "which bash expands twice"),
    "a copy of a stream by a variable": ("x=@@; echo a >&$x", "which bash expands twice"),
    "a case in a substitution": ('echo "$(case a in a) echo @@;; esac)"', "after a `case` inside $(...)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_every_other_place_is_refused_whatever_the_value_is(name: str) -> None:
    template, why = REFUSED[name]
    with pytest.raises(Misplaced) as caught:
        quoted(template, "5")
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("template", "value", "text"),
    [
        ("echo @@", None, "echo ''"),
        ("echo @@", True, "echo 'true'"),
        ("echo @@", 1.5, "echo '1.5'"),
        ("echo @@", ["a", {"b": "ü"}], 'echo \'["a", {"b": "ü"}]\''),
        ("echo '@@'", "it's", "echo 'it'\\''s'"),
        ('echo "a @@"', '$x"', 'echo "a "\'$x"\'""'),
        ("i=0; while [ $i -lt 3 ]; do i=$((i+1)); curl @@; done", "u", None),
        ('x=$(curl -s @@ 2>&1); x=${x%.*}; echo "$x" > @@/log', "u", None),
        ("timeout 30 curl @@ && sudo cp @@ /x", "u", None),
        ("df | awk '{print $4}' | sed s/GB//; echo @@", "u", None),
        ('if [[ "@@" == prod ]]; then export A=@@; fi', "u", None),
        ("ls @@ | xargs -n 1 rm; ls | xargs -n 1 sh -c 'echo \"$1\"' sh", "u", None),
        ("git -c user.name=@@ commit -m @@ && tar czf @@ --exclude=@@ . && find @@ -name @@ -exec rm {} +", "u", None),
        ("python3 work.py --id @@ && bash run.sh @@", "u", None),
        ("docker exec @@ ls && kubectl get pods -n @@ &> /dev/null", "u", None),
        ("echo a\n---\necho @@", "u", "echo a\necho 'u'"),
    ],
)
def test_a_value_is_one_quoted_word(template: str, value: Any, text: str | None) -> None:
    plain = template.replace("\n---\n", "\n")
    assert quoted(template, value) == (
        text if text is not None else plain.replace('"@@"', '""\'u\'""').replace("@@", "'u'")
    )


@pytest.mark.parametrize(
    ("template", "is_refused"),
    [
        ("tar cf /dev/null @@", True),
        ('sudo tar cf /dev/null "@@/a"', True),
        ("x=@@; tar cf /dev/null $x", True),
        ("tar cf /dev/null $(echo @@)", True),
        ("tar cf /dev/null -- @@", False),
        ("tar cf /dev/null --exclude=@@ /dev/null", False),
        ("tar cf /dev/null ./@@", False),
        ("echo @@", False),
    ],
)
def test_no_value_becomes_an_option_of_a_program_that_has_options_that_run_programs(
    template: str, is_refused: bool
) -> None:
    value = "--use-compress-program=touch ran"
    if is_refused:
        with pytest.raises(ValueError, match="a value begins with `-`"):
            quoted(template, value)
    else:
        assert "'" in quoted(template, value)
    assert "'u'" in quoted(template, "u").replace("u/a", "u")


def test_text_without_values_is_not_read() -> None:
    assert quoted("echo `x` $'\\n' ${y:-''} <<EOF", "") == "echo `x` $'\\n' ${y:-''} <<EOF"


@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
def test_what_no_program_can_be_given_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="a value has"):
        quoted("echo @@", value)


def test_bash_does_expand_the_name_of_a_copied_stream_twice(tmp_path: Path) -> None:
    """Why a value there is refused, although it is quoted."""
    subprocess.run(
        ["bash", "-c", f"echo >&1'$(touch {tmp_path}/twice)'"], cwd=tmp_path, capture_output=True, check=False
    )
    assert (tmp_path / "twice").exists()


@pytest.mark.parametrize("name", ["RANDOM", "OPTIND", "SRANDOM"])
def test_bash_does_run_what_some_variables_are_set_to(name: str, tmp_path: Path) -> None:
    """Why these names are refused. If this fails, bash has changed, and the list may be shorter."""
    subprocess.run(
        ["bash", "-c", f"{name}='a[$(touch {tmp_path}/{name})]'"], cwd=tmp_path, capture_output=True, check=False
    )
    assert (tmp_path / name).exists()
