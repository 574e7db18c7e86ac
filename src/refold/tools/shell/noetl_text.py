"""Values in the text of a shell command (bash, sh, dash): each becomes one quoted word, or the text is refused.

A value may stand as a word, as part of a word, or inside plain quotes, also within `$(...)`. It is written in single
quotes there, in which no character means anything. All other places are refused, and so is every text with values that
has something this reader does not follow: here-documents, backticks, `${...}` that does more than name a variable,
arithmetic on what may come from a value, programs given to another interpreter. The reader is small on purpose: it
refuses what it does not know. Texts without values are not read at all.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

from msgspec import Struct, field

from refold.core.pipeline import Task
from refold.tool_api import ToolProblem, refused
from refold.tools.noetl_text import HOLE, Holed, Misplaced, Pieces, has_values, holed, problems_in, refusing_misplaced

SHELLS = ("bash", "sh", "dash")
BARE, DOUBLE, SINGLE = "bare", "double", "single"
GUARDED = "!"  # behind a kind of place: the value may not begin with a `-`
REMEDY = 'pass the value in `env` and write "$NAME"'
COMPUTE = "compute it in a template, such as {{ n + 1 }}, or in a `python` step"
APPEND = 'let `xargs` append it, and write "$1" in the program'

COUNTED, OTHER = "\1", "\2"  # in the text of a word: arithmetic, and any other expansion
NAME = re.compile(r"[A-Za-z_]\w*", re.A)
ASSIGNED = re.compile(r"([A-Za-z_]\w*)\+?=", re.A)
PARAMETER = re.compile(r"\$\{#?(\w+)(?:(?::?[-=?+]|##?|%%?)[\w ./:,@%+*-]*)?\}", re.A)
SUM = re.compile(r"[\w\s+*/%<>=!&|^~?:,$-]*", re.A)
NUMBER = re.compile(rf"[\d{COUNTED}]+", re.A)
POSITIONAL = re.compile(r"[0-9@*]", re.A)
COPIED = re.compile(r"[<>]&(?:\d+|-)(?=[ \t\n;&|()]|\Z)", re.A)  # of a stream, or its end
CONTINUES = re.compile(r"[\w \t\"'/.,:=}-]", re.A)  # what may stand before a line that a backslash ends

RESERVED = {"if", "then", "else", "elif", "while", "until", "do", "{", "!", "time"}
PREFIXES = {"sudo", "nohup", "exec", "command", "builtin"}
TIMED = re.compile(r"\d+(?:\.\d+)?[smhd]?", re.A)
INTERPRETER = re.compile(r"(?:ba|da|k|z|c|tc|a|fi)?sh|busybox|python[\d.]*|pypy[\d.]*", re.A)
TWICE = {"eval", "let", "alias", "coproc", "select", "compgen", "complete"}  # never in a text with values
NAMING = {"read", "unset", "mapfile", "readarray", "getopts", "wait", "set", "shift", "enable", "shopt", "return"}
DECLARING = {"export", "readonly", "local", "declare", "typeset"}
# Programs to which an argument is a program, or names one: wherever they stand in a command, and only at its beginning.
LANGUAGES = {
    *("awk", "gawk", "mawk", "nawk", "sed", "gsed", "perl", "ruby", "node", "nodejs", "deno", "php", "lua", "tclsh"),
    *("jq", "yq", "ssh", "psql", "mysql", "mariadb", "sqlite3", "duckdb", "bc", "dc", "expr", "osascript", "gdb"),
    *("parallel", "xargs", "Rscript", "m4"),
}
STARTING = {
    *("source", ".", "trap", "env", "nice", "setsid", "stdbuf", "chroot", "timeout", "script", "make", "watch", "su"),
    *("at", "batch", "ed", "ex", "vi", "vim", "expect", "R"),
    *PREFIXES,
}
READING_DATA = {
    *("awk", "gawk", "mawk", "nawk", "sed", "gsed", "jq", "yq", "xargs", "make", "env", "trap", "expr"),
    *PREFIXES,
}
SPECIAL = re.compile(
    r"BASH\w*|ENV|SHELL|SHELLOPTS|IFS|PATH|PS\d|PROMPT_COMMAND|RANDOM|SRANDOM|SECONDS|OPTIND|LINENO|HIST\w*|LD_\w+"
    r"|DYLD_\w+|PYTHON\w+|PERL\w*|RUBY\w*|NODE_\w+|JAVA_\w+|GIT_\w+|EDITOR|VISUAL|PAGER|BROWSER|GLOBIGNORE|MAILCHECK",
    re.A,
)
# Options whose value is a program: what is behind them, or in the next word, is run.
PROGRAM_OPTION = re.compile(
    r"--[\w-]*(?:exec|command|action|program|script|rsh|-pack|eval|pager|rsync-path)(?:=.*)?"
    r"|-(?:exec|execdir|ok|okdir)|(?:-o)?(?:Proxy|Local|Remote)Command(?:=.*)?",
    re.A | re.S,
)
# Programs of which an option runs another program: no value may begin a word there and be read as one.
HAS_PROGRAM_OPTIONS = {
    *("find", "tar", "gtar", "bsdtar", "cpio", "zip", "git", "hg", "svn", "rsync", "scp", "sftp", "sort", "split"),
    *(
        "wget",
        "man",
        "less",
        "tcpdump",
        "fd",
        "rg",
        "docker",
        "nmap",
        "strace",
        "flock",
        "ionice",
        "taskset",
        "unshare",
    ),
}
OWN_PROGRAM_OPTIONS = {"git": "-c", "rsync": "-e", "tar": "-I", "man": "-P"}
GIT_DATA = re.compile(r"(?:user|http)\.\w+=", re.A)  # settings of git that name no program
REPLACES = re.compile(r"-\w*[IiJ].*|--repl.*", re.A | re.S)  # options of xargs that put what it reads into any place
SEPARATE = re.compile(r"-\w*[adELnPRSs]", re.A)  # options of xargs whose value is the next word
COMPUTES = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v", "-R", "=~"}


class Word(Struct):
    """`text` has a mark for each part that is not written out; `holes` are those in it, also within `$(...)`."""

    text: str = ""
    holes: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # variables that it expands
    quoted: bool = False

    @property
    def literal(self) -> str | None:
        return None if self.holes or any(mark in self.text for mark in (HOLE, COUNTED, OTHER)) else self.text

    @property
    def assigns(self) -> str:
        """Return the variable, if the word is an assignment."""
        found = ASSIGNED.match(self.text)
        return found[1] if found else ""


class SimpleCommand(Struct):
    """A simple command: its words, without redirections."""

    words: list[Word] = field(default_factory=list)


class ShellFrame(Struct):
    """The text itself, or a `$(...)` in it."""

    command: SimpleCommand = field(default_factory=SimpleCommand)
    word: Word | None = None
    in_double: bool = False
    breaks: bool = False  # the open quote goes on over several lines
    inside: list[int] = field(default_factory=list)  # holes in the open quote
    depth: int = 0  # of parentheses
    redirects: bool = False  # the next word is where something is read from or written to
    holes: list[int] = field(default_factory=list)


def places_of(texts: Sequence[str]) -> list[str]:
    """Return the kind of place of each hole; the texts are lines that one shell runs. Raises Misplaced."""
    if not any(HOLE in text for text in texts):
        return []
    reader = _Reader()
    for text in texts:
        reader.read(text)
    _Checks(reader).check()
    return reader.places


def written(place: str, value: Any) -> str:
    """Return the quoted value. Raises ValueError for a text that no program can be given."""
    text = text_of(value)
    if place.endswith(GUARDED) and text.startswith("-"):
        raise ValueError(
            "a value begins with `-`, and the program that gets it has options that run other programs; write `--` "
            "before the value, or the name of an option, as in `--file={{ value }}`"
        )
    place = place.removesuffix(GUARDED)
    if "\0" in text:
        raise ValueError("a value has a NUL character, which no program can be given")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a value has half of a surrogate pair, which is not a character") from None
    inside = text.replace("'", "'\\''")
    return {BARE: f"'{inside}'", SINGLE: inside, DOUBLE: f"\"'{inside}'\""}[place]


def text_of(value: Any) -> str:
    """Return the value as programs write it."""
    match value:
        case str():
            return value
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            return json.dumps(value, ensure_ascii=False)


class _Reader:
    def __init__(self) -> None:
        self.places: list[str] = []
        self.commands: list[SimpleCommand] = []
        self.sums: list[str] = []  # names that arithmetic reads
        self.feeds = False  # a program may read what another one writes, or a file
        self._frames = [ShellFrame()]
        self._text = ""
        self._at = 0

    @property
    def _frame(self) -> ShellFrame:
        return self._frames[-1]

    def read(self, text: str) -> None:
        """Read one text that is complete by itself."""
        self._text, self._at = text, 0
        while self._at < len(text):
            self._at += self._in_double() if self._frame.in_double else self._bare()
        if len(self._frames) > 1 or self._frame.in_double:
            self._refuse("in a text in which a quote or a `$(` is not closed", "close it on its own line")
        self._end_command()

    def _refuse(self, where: str, remedy: str = REMEDY, hole: int | None = None) -> NoReturn:
        """Of the next hole of this text, if none is named, or else of the last one."""
        if hole is None:
            hole = len(self.places) if HOLE in self._rest() else max(len(self.places) - 1, 0)
        raise Misplaced(hole, f"a value stands {where}", remedy)

    def _rest(self) -> str:
        return self._text[self._at :]

    # Characters outside of quotes. Each method returns how many characters it has read.

    def _bare(self) -> int:
        text, at, frame = self._text, self._at, self._frame
        match text[at]:
            case " " | "\t":
                self._end_word()
            case "\n" | ";" | "&" | "|":
                return self._separator()
            case "<" | ">":
                return self._redirection()
            case "(":
                return self._opening()
            case ")":
                self._closing()
            case "#" if frame.word is None:
                return self._comment()
            case "\\":
                return self._backslash()
            case "'":
                return self._single()
            case '"':
                self._word().quoted = True
                frame.in_double, frame.breaks, frame.inside = True, False, []
            case "$":
                return self._expansion()
            case "`":
                self._refuse("in a text with backticks", "write $(...) in their stead")
            case "[" if frame.word is not None and NAME.fullmatch(frame.word.text):
                self._refuse("in a text with a subscript, which bash computes", COMPUTE)
            case char if char == HOLE:
                self._hole(BARE)
            case char:
                self._word().text += char
        return 1

    def _in_double(self) -> int:
        text, at, frame = self._text, self._at, self._frame
        match text[at]:
            case '"':
                if frame.breaks and frame.inside:
                    self._refuse("in quotes that go on over several lines", REMEDY, frame.inside[0])
                frame.in_double = False
            case "\\":
                return self._backslash()
            case "$":
                return self._expansion()
            case "`":
                self._refuse("in a text with backticks", "write $(...) in their stead")
            case char if char == HOLE:
                frame.inside.append(len(self.places))
                self._hole(DOUBLE)
            case char:
                frame.breaks = frame.breaks or char == "\n"
                self._word().text += char
        return 1

    def _word(self) -> Word:
        if self._frame.word is None:
            self._frame.word = Word()
        return self._frame.word

    def _hole(self, place: str) -> None:
        number = len(self.places)
        self.places.append(place)
        self._word().holes.append(number)
        self._word().text += HOLE
        for frame in self._frames:
            frame.holes.append(number)

    def _end_word(self) -> None:
        frame, word = self._frame, self._frame.word
        if word is None:
            return
        if not frame.redirects:
            frame.command.words.append(word)
        frame.redirects, frame.word = False, None

    def _end_command(self) -> None:
        self._end_word()
        frame = self._frame
        words = frame.command.words
        if len(self._frames) > 1 and words and words[0].literal == "case":
            self._refuse("after a `case` inside $(...)", "move it out of there")
        if words:
            self.commands.append(frame.command)
        frame.redirects = False
        frame.command = SimpleCommand()

    def _separator(self) -> int:
        text, at = self._text, self._at
        if text.startswith("&>", at):
            return 1  # the redirection comes next
        two = text[at : at + 2]
        self.feeds = self.feeds or (text[at] == "|" and two != "||")
        self._end_command()
        return 2 if two in ("||", "&&", "|&", ";;") else 1

    def _redirection(self) -> int:
        text, at, frame = self._text, self._at, self._frame
        if text.startswith(("<<", "<(", ">("), at):
            self._refuse("in a text with a here-document, a here-string or `<(...)`")
        if frame.word is not None and (frame.word.literal or "").isdigit() and not frame.word.quoted:
            frame.word = None  # the number of what is redirected
        self._end_word()
        if text[at + 1 : at + 2] == "&":
            if (copied := COPIED.match(text, at)) is None:
                self._refuse("in a text with `>&` or `<&` and no plain number, which bash expands twice")
            return len(copied[0])
        width = 2 if text[at : at + 2] in (">>", ">|", "<>") else 1
        frame.redirects = True
        self.feeds = self.feeds or text[at] == "<"
        if text.startswith("\\\n", at + width):
            self._refuse("behind a line that a backslash ends", "write it as one line")
        return width

    def _opening(self) -> int:
        text, at, frame = self._text, self._at, self._frame
        if text.startswith("(\\\n", at):
            self._refuse("behind a line that a backslash ends", "write it as one line")
        if frame.word is not None:
            if frame.word.literal is None or not text.startswith("()", at) or frame.command.words:
                self._refuse("in a text with a list or a pattern in parentheses")
            self._end_command()
            return 2
        if text.startswith("((", at):
            return self._sum(at + 2)
        frame.depth += 1
        self._end_command()
        return 1

    def _closing(self) -> None:
        self._end_command()
        frame = self._frame
        if len(self._frames) == 1 or frame.depth:
            frame.depth = max(frame.depth - 1, 0)
            return
        self._frames.pop()
        word = self._word()
        word.text += OTHER
        word.holes += frame.holes

    def _comment(self) -> int:
        line = self._rest().split("\n", 1)[0]
        if HOLE in line:
            self._refuse("in a comment", "take it out of the comment")
        if len(self._frames) > 1:
            self._refuse("in a text with a comment inside $(...)", "take the comment out of it")
        return len(line)

    def _backslash(self) -> int:
        text, at, frame = self._text, self._at, self._frame
        following = text[at + 1 : at + 2]
        if following == HOLE:
            self._refuse("behind a backslash", "take the backslash away")
        if following in ("\n", ""):
            if following == "" or (at and not CONTINUES.fullmatch(text[at - 1])):
                self._refuse("in a text with a line that a backslash ends", "write it as one line")
            frame.breaks = True
            return 2
        word = self._word()
        word.quoted = True
        word.text += ("\\" if frame.in_double and following not in '$`"\\' else "") + following
        return 2

    def _single(self) -> int:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            self._refuse("in a text in which a quote is not closed", "close it on its own line")
        inside = self._text[self._at + 1 : end]
        if HOLE in inside and "\n" in inside:
            self._refuse("in quotes that go on over several lines")
        word = self._word()
        word.quoted = True
        for part in re.split(f"({HOLE})", inside):
            if part == HOLE:
                self._hole(SINGLE)
            else:
                word.text += part
        return end + 1 - self._at

    def _expansion(self) -> int:
        text, at, frame = self._text, self._at, self._frame
        following = text[at + 1 : at + 2]
        if following == HOLE:
            self._refuse("behind a `$`", "write \\$ for the sign itself")
        if following == "[" or text.startswith("$\\\n", at) or (following in ("'", '"') and not frame.in_double):
            self._refuse("in a text with `$'...'`, `$\"...\"` or `$[...]`", "write it in another way")
        if text.startswith("$((", at):
            return self._sum(at + 3)
        if following == "(":
            self._word()
            self._frames.append(ShellFrame())
            return 2
        if following == "{":
            found = PARAMETER.match(text, at)
            if found is None:
                self._refuse("in a text with a `${...}` that does more than to name a variable")
            return self._variable(found[1], len(found[0]))
        if found := NAME.match(text, at + 1):
            return self._variable(found[0], 1 + len(found[0]))
        if following and following in "0123456789@*#?$!-":
            return self._variable(following, 2)
        self._word().text += "$"
        return 1

    def _variable(self, name: str, width: int) -> int:
        word = self._word()
        word.names.append(name)
        word.text += OTHER
        return width

    def _sum(self, begin: int) -> int:
        """Read arithmetic up to its `))`; only names, numbers and signs may be in it."""
        text, depth, end = self._text, 2, begin
        while end < len(text) and depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        inside = text[begin : end - 2]
        if HOLE in inside:
            self._refuse("in arithmetic", COMPUTE)
        if depth or text[end - 2 : end] != "))" or not SUM.fullmatch(re.sub(r"[()]", " ", inside)):
            self._refuse("in a text with arithmetic that does more than to count", COMPUTE)
        self.sums += re.findall(r"(?<!\w)[A-Za-z_]\w*", inside, re.A)
        self.sums += re.findall(r"\$(\W|\d)", inside, re.A)
        self._word().text += COUNTED
        return end - self._at


class _Checks:
    """Refuses texts that could run a value in another way than as a word, whatever the values are."""

    def __init__(self, reader: _Reader) -> None:
        self.commands, self.sums, self.feeds = reader.commands, reader.sums, reader.feeds
        self.places = reader.places
        self.bound: set[str] = set()  # variables that get what is not written out
        self.counted: set[str] = set()  # variables that get nothing but numbers
        self._learn()

    def check(self) -> None:
        conditional = any(word.literal == "[[" for command in self.commands for word in command.words)
        for name in self.sums:
            if name not in self.counted:
                raise self._misplaced(
                    f"in a text that computes with `{name}`, and bash runs what that may hold", (), COMPUTE
                )
        for command in self.commands:
            words = _without_reserved(command.words)
            if conditional and not (words and words[0].literal in ("[", "test")):
                self._forbid(words, COMPUTES, "in a text with `[[ ... {} ... ]]`, where bash computes", "write `[`")
            self._command(words)

    def _learn(self) -> None:
        """Remember which variables are set, and to what."""
        others: set[str] = set()
        for command in self.commands:
            words = _without_reserved(command.words)
            names = {word.literal for word in words if word.literal and NAME.fullmatch(word.literal)}
            if words and words[0].literal in {*NAMING, "for", "printf"}:
                self.bound |= {name for name in names if name is not None}
            for word in words:
                if not (name := word.assigns):
                    continue
                value = word.text.split("=", 1)[1]
                if NUMBER.fullmatch(value):
                    self.counted.add(name)
                else:
                    others.add(name)
                if word.literal is None and not NUMBER.fullmatch(value):
                    self.bound.add(name)
        self.counted -= others | self.bound

    def _command(self, words: list[Word]) -> None:
        while words and words[0].assigns:
            self._assignment(words[0])
            words = words[1:]
        if not words:
            return
        words = _without_prefix(words)
        program = words[0]
        if program.literal is None and (program.holes or self._carries(words)):
            raise self._misplaced("where a program is named", words, "write the program out, or give a list")
        name = _file_name(program.literal or "")
        if name in TWICE:
            raise self._misplaced(f"in a text with `{name}`, which reads a text twice")
        if name in ("[", "test"):
            self._forbid(words, {"-v", "-R"}, "in a text with `test {}`, which computes", COMPUTE)
        if name in NAMING or (name == "printf" and any((w.text or "").startswith("-v") for w in words[1:2])):
            self._written_out(words, f"in an argument of `{name}`, where names are computed")
        if name in DECLARING:
            self._declaration(name, words)
        if name == "for":
            self._written_out(words[:2], "where a variable is named")
        self._program_options(name, words)
        self._guard(words)
        self._languages(words)

    def _guard(self, words: list[Word]) -> None:
        """A value that is an argument of such a program, or the begin of one, must not become an option of it."""
        is_argument = False
        for word in words:
            if is_argument and word.literal == "--":
                return
            if is_argument and word.text[:1] in (HOLE, OTHER) and self._carries([word]):
                variable = not word.holes or word.text[0] == OTHER  # it may hold any of the values
                for hole in range(len(self.places)) if variable else word.holes[:1]:
                    self.places[hole] = self.places[hole].removesuffix(GUARDED) + GUARDED
            is_argument = is_argument or _file_name(word.literal or "") in HAS_PROGRAM_OPTIONS

    def _program_options(self, name: str, words: list[Word]) -> None:
        own = OWN_PROGRAM_OPTIONS.get(name, "")
        for before, word in pairwise(words):
            option = before.literal or ""
            if not self._carries([word]):
                continue
            named = own != "" and option == own and not GIT_DATA.match(word.text)
            if named or PROGRAM_OPTION.fullmatch(option) or _is_program_option(word, own):
                raise self._misplaced("in an option that names a program", [word])

    def _languages(self, words: list[Word]) -> None:
        fed_by_xargs = False
        for i, word in enumerate(words):
            name = _file_name(word.literal or "")
            if name == "xargs" and self.feeds:
                if _replaces(words[i + 1 :]):
                    raise self._misplaced("in a text with `xargs` that puts what it reads into a command", (), APPEND)
                fed_by_xargs = True
            elif fed_by_xargs and (name in LANGUAGES or name in STARTING or name in HAS_PROGRAM_OPTIONS):
                raise self._misplaced(f"in a program for `{name}`", words)
            if INTERPRETER.fullmatch(name):
                self._interpreter(name, words[i + 1 :])
                return
            if name in LANGUAGES or (i == 0 and name in STARTING):
                fed = name not in READING_DATA
                if self._carries(words[i + 1 :]) or (fed and self.feeds):
                    raise self._misplaced(f"in a program for `{name}`", words)

    def _interpreter(self, name: str, rest: list[Word]) -> None:
        """Its program must be written out; what stands behind that are arguments."""
        first = rest[0].literal if rest else None
        second = rest[1].literal if len(rest) > 1 else None
        program = second if first in ("-c", "-m") else first
        replaced = program is not None and "{}" in program  # by what `find` has found, a name that may be a value
        if program and program[0] not in "-+" and not replaced and name != "busybox":
            return
        if replaced or self._carries(rest) or self.feeds:
            raise self._misplaced(
                f"in a program for `{name}`", rest, 'give it behind the program, and write "$1" there'
            )

    def _assignment(self, word: Word) -> None:
        if word.literal is None and SPECIAL.fullmatch(word.assigns) and self._carries([word]):
            raise self._misplaced(f"in `{word.assigns}=`, which decides what is run", [word])

    def _declaration(self, name: str, words: list[Word]) -> None:
        for word in words[1:]:
            if word.assigns:
                self._assignment(word)
            elif word.literal is None or word.literal.startswith("-"):
                raise self._misplaced(f"in a text with `{name}` that does more than `{name} NAME=...`", words)

    def _written_out(self, words: Sequence[Word], where: str) -> None:
        if any(word.literal is None for word in words):
            raise self._misplaced(where, words, "write the name out")

    def _forbid(self, words: Sequence[Word], forbidden: set[str], where: str, remedy: str) -> None:
        for word in words:
            if word.literal in forbidden:
                raise self._misplaced(where.format(word.literal), words, remedy)

    def _carries(self, words: Sequence[Word]) -> bool:
        """Whether a word contains a value, or a variable that may hold one."""
        return any(word.holes or any(n in self.bound or POSITIONAL.fullmatch(n) for n in word.names) for word in words)

    def _misplaced(self, where: str, words: Sequence[Word] = (), remedy: str = REMEDY) -> Misplaced:
        holes: Iterator[int] = (hole for word in words for hole in word.holes)
        return Misplaced(next(holes, 0), f"a value stands {where}", remedy)


def _without_reserved(words: list[Word]) -> list[Word]:
    at = 0
    while at < len(words) and words[at].literal in RESERVED and not words[at].quoted:
        at += 1
    return words[at:]


def _without_prefix(words: list[Word]) -> list[Word]:
    """Return `cp x` for `sudo cp x`. With options it stays as it is, and no value may follow."""
    while len(words) > 1:
        first, second = words[0].literal, words[1].literal
        if first == "timeout" and TIMED.fullmatch(second or "") and len(words) > 2:
            second, skip = words[2].literal, 2
        else:
            skip = 1 if first in PREFIXES else 0
        if not skip or second is None or second.startswith("-") or "=" in second:
            return words
        words = words[skip:]
    return words


def _is_program_option(word: Word, own: str) -> bool:
    """Whether the value in the word is that of such an option, as in `--exec=...`."""
    begin = re.split(f"[{HOLE}{COUNTED}{OTHER}]", word.text)[0]
    return bool("=" in begin and PROGRAM_OPTION.fullmatch(begin)) or (own != "" and begin.startswith(own))


def _replaces(words: Sequence[Word]) -> bool:
    """Whether one of the options of xargs lets it put what it reads into any place of a command."""
    skip = False
    for word in words:
        option = word.literal or ""
        if skip:
            skip = False
        elif REPLACES.fullmatch(option):
            return True
        elif not option.startswith("-"):
            return False
        else:
            skip = SEPARATE.fullmatch(option) is not None
    return False


def _file_name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def quote(task: Task, key: str, pieces: Pieces, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Put values into text for a shell. A map has the lines of one, and a list is a program and its arguments."""
    command = keys[key]
    if isinstance(command, str):
        return {key: _filled(key, [command], pieces)[0]}
    if not isinstance(command, dict):
        return {key: command}
    lines = [line if isinstance(line, str) else str(line) for line in command["lines"]]
    stops = ["-e"] if len(lines) > 1 else []
    if any(has_values(text) for text in lines) and (why := _unknown_shell(str(command["shell"]))):
        raise refused(f"`{key}`: {why}")
    return {key: [str(command["shell"]), *stops, "-c", "\n".join(_filled(key, lines, pieces))]}


def _filled(key: str, written_texts: Sequence[str], pieces: Pieces) -> list[str]:
    texts = [holed(text, pieces(text)) for text in written_texts]
    with refusing_misplaced(key, texts):
        places = iter(places_of([text.text for text in texts]))
        return [_with_values(text, places) for text in texts]


def _with_values(text: Holed, places: Iterator[str]) -> str:
    parts = text.text.split(HOLE)
    values = zip(text.values, parts[1:], strict=True)
    return parts[0] + "".join(written(next(places), value) + part for value, part in values)


def _unknown_shell(shell: str) -> str:
    if shell.rsplit("/", 1)[-1] in SHELLS:
        return ""
    return f"values can be put into text for {', '.join(SHELLS)}, and not for {shell!r}; use `env`"


def problems(key: str, text: Any) -> Iterator[ToolProblem]:
    """Yield what `quote` would refuse in a text, as far as that is known without the values."""
    match text:
        case {"shell": shell, "lines": [*lines]}:
            if any(isinstance(line, str) and has_values(line) for line in lines) and (
                why := _unknown_shell(str(shell))
            ):
                yield ToolProblem(key, why, "write `shell: bash`, or pass the value in `env`")
            else:
                yield from problems_in(key, [line for line in lines if isinstance(line, str)], places_of)
        case str():
            yield from problems_in(key, [text], places_of)
