"""Reads YAML text as plain data in which every key and value has its position; hostile text costs little.

One pass over the parser's event stream counts, refuses and builds. What the parser would do by itself with a whole
document (recursion, tags, merge keys, expanding aliases) never happens. Plain words have the values of the core schema
of YAML 1.2, in which `no`, `on` and `1:30` are text.
"""

import json
import math
import re
from collections.abc import Callable
from typing import Any, NoReturn

from msgspec import Struct
from yaml import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    YAMLError,
)
from yaml._yaml import CParser

from refold.playbooks.problems import BREAK, InvalidPlaybook, Place, Problem, in_order
from refold.playbooks.yaml.errors import QUOTE_TEMPLATE, UNQUOTED, explain

WORDS: dict[str, Any] = {"": None, "~": None}
WORDS |= {spelt: None for spelt in ("null", "Null", "NULL")}
WORDS |= {spelt: True for spelt in ("true", "True", "TRUE")}
WORDS |= {spelt: False for spelt in ("false", "False", "FALSE")}

PLAIN_STARTS = frozenset("~nNtTfF+-.0123456789") | {""}
"""The first characters of words that may be more than text."""

_INTEGER = re.compile(r"[-+]?[0-9]+")
_OTHER_INTEGER = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LONGEST = 400  # digits; what is longer fits no number below
_INTEGERS = range(-(2**63), 2**64)  # what JSON readers and stores keep exactly


class BadScalar(Exception):
    """A number that is too large."""


def plain_value(word: str) -> Any:
    if word in WORDS:
        return WORDS[word]
    if _INTEGER.fullmatch(word):
        return _kept(word, int(word) if len(word) <= _LONGEST else None)
    if _FLOAT.fullmatch(word):
        value = float(word)
        if math.isinf(value):
            raise BadScalar(f"`{word[:40]}` is too large for a number")
        return value
    if _OTHER_INTEGER.fullmatch(word):
        return _kept(word, int(word, 0) if len(word) <= _LONGEST else None)
    if _NO_NUMBER.fullmatch(word):
        raise BadScalar(f"`{word}` is a number that is too large to be stored")
    return word


def _kept(word: str, value: int | None) -> int:
    if value is None or value not in _INTEGERS:
        raise BadScalar(f"`{word[:40]}` does not fit into 64 bits")
    return value


MAX_SIZE = 1 << 20  # characters of the text
MAX_DEPTH = 64
MAX_NODES = 50_000  # keys and values, each alias counted as what it stands for
MAX_ALIASES = 100
MAX_TEXT = 256 * 1024  # characters of one value
MAX_PROBLEMS = 100
QUOTE_STAR = "put text that begins with `*` in quotes"

UNPRINTABLE = r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"  # slow to compile
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # the same for ASCII, and faster
DIRECTIVE = re.compile(r"^%(?:YAML|TAG)\b", re.M)  # reading many of them takes time that grows with their square

PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
"""A character above U+FFFF as JSON writes it, in two escapes; YAML knows only single ones."""


class Node(Struct, gc=False):  # a tree, so nothing has to be looked for in circles
    """A value and its position; `nodes` has the nodes of what is inside, `value` the plain data."""

    value: Any
    start: Any  # the parser's mark
    end: Any
    style: str = ""  # of a text: plain, quoted, or a block with | or >; `*` is an alias
    nodes: Any = ()  # of a map: key -> Node; of a list: its Nodes
    keys: Any = ()  # of a map: key -> where it starts

    @property
    def place(self) -> Place:
        return Place(self.start.line + 1, self.start.column + 1)

    @property
    def length(self) -> int:
        return _length(self.start, self.end)

    def place_of(self, key: str) -> Place:
        mark = self.keys[key]
        return Place(mark.line + 1, mark.column + 1)


def _length(start: Any, end: Any) -> int:
    return max(1, end.column - start.column) if start.line == end.line else 1


def decode(data: bytes, file: str) -> str:
    """Decode the bytes of a file, which must be UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        good = data[: error.start].decode("utf-8")
        lines = BREAK.split(good)
        place = Place(len(lines), len(lines[-1]) + 1)
        message = f"byte 0x{data[error.start]:02x} is not UTF-8 text"
        problem = Problem("not-utf8", message, place, "save the file as UTF-8")
        raise InvalidPlaybook([problem], file, data.decode("utf-8", "replace")) from None


def read(text: str, file: str) -> Node:
    """Read the single document of the text; raise InvalidPlaybook with everything that makes it unreadable."""
    problem = _unfit(text)
    if problem is not None:
        raise InvalidPlaybook([problem], file, text)
    builder = _Builder(text)
    try:
        root = builder.run()
        if not builder.problems:
            return root
    except _Stop:
        pass  # it has said why
    except YAMLError as error:
        builder.problems.append(explain(error, text))
    raise InvalidPlaybook(in_order(builder.problems), file, text)


def _unfit(text: str) -> Problem | None:
    """Problems of the text itself, before any YAML is read."""
    if len(text) > MAX_SIZE:
        message = f"the text has {len(text):,} characters; at most {MAX_SIZE:,} are read"
        return Problem("too-large", message, Place(1, 1), "split the playbook, or read large data in a step")
    found = CONTROL.search(text) if text.isascii() else re.search(UNPRINTABLE, text)
    if found is not None:
        message = f"character U+{ord(found.group()):04X} is not allowed in YAML"
        return Problem("bad-character", message, place_in(text, found.start()), "remove it, or write it as an escape")
    found = DIRECTIVE.search(text) if text.startswith("%") or "\n%" in text or "\r%" in text else None
    if found is not None:
        place = place_in(text, found.start())
        return Problem("yaml-directive", "directives are not read", place, "leave this line out", length=5)
    return None


def place_in(text: str, index: int) -> Place:
    """The position of a character in a text."""
    lines = BREAK.split(text[:index])
    return Place(len(lines), len(lines[-1]) + 1)


class _Stop(Exception):
    """The rest of the text cannot be read."""


class _Open(Struct):
    """A map or a list that is being read."""

    value: Any
    nodes: Any
    keys: Any
    event: Any
    before: int = 0  # nodes counted before it
    key: str | None = None  # of a map: the key that waits for its value
    height: int = 1  # of what is inside


class _Anchored(Struct):
    node: Node
    size: int
    height: int


class _Builder:
    """Builds nodes from the parser's events; recoverable problems are collected, others stop it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.problems: list[Problem] = []
        self.here = _Open([], [], None, None)  # the document is the only item of this list
        self.open: list[_Open] = []  # those around it
        self.anchors: dict[str, _Anchored | None] = {}  # None: what it names is not complete yet
        self.nodes = self.aliases = self.documents = 0
        self.takes: dict[type[Any], Callable[[Any], None]] = {
            MappingStartEvent: self.start,
            SequenceStartEvent: self.start,
            MappingEndEvent: self.end,
            SequenceEndEvent: self.end,
            AliasEvent: self.alias,
            DocumentStartEvent: self.document,
        }

    def run(self) -> Node:
        take, scalar = self.takes.get, self.scalar
        parsed, pairs = PAIR.subn(_single, self.text) if "\\u" in self.text else (self.text, 0)
        if pairs:
            scalar = self.scalar_with_pairs
        get = CParser(parsed).get_event
        while True:
            event = get()
            kind = type(event)
            if kind is ScalarEvent:
                scalar(event)
            elif (taken := take(kind)) is not None:
                taken(event)
            elif kind is StreamEndEvent:
                break
        if not self.documents:
            self.stop("empty", "the file is empty", event, "a playbook begins with `apiVersion: refold/v1`")
        root: Node = self.here.nodes[0]
        return root

    def say(self, code: str, message: str, event: Any, hint: str = "") -> None:
        mark = event.start_mark
        place = Place(mark.line + 1, mark.column + 1)
        self.problems.append(Problem(code, message, place, hint, length=_length(mark, event.end_mark)))
        if len(self.problems) >= MAX_PROBLEMS:
            raise _Stop

    def stop(self, code: str, message: str, event: Any, hint: str = "") -> NoReturn:
        self.say(code, message, event, hint)
        raise _Stop

    def document(self, event: Any) -> None:
        self.documents += 1
        if self.documents > 1:
            self.stop("many-documents", "a second document begins here", event, "write one playbook per file")

    def scalar(self, event: Any) -> None:
        """Scalars are by far the most frequent event, so rare cases are handled elsewhere."""
        text = value = event.value
        style = event.style
        if style == "":
            if text[:1] in PLAIN_STARTS:
                value = self.plain(event)
        elif style == '"' and "\0" in text:
            self.say("bad-character", "a text cannot contain the character NUL", event, "leave `\\0` out")
        if event.tag is not None or event.anchor is not None or len(text) > MAX_TEXT:
            self.decorated(event, value)
        self.nodes += 1
        if self.nodes > MAX_NODES:
            self.too_many(event)
        here = self.here
        if here.keys is None:
            here.value.append(value)
            here.nodes.append(Node(value, event.start_mark, event.end_mark, style))
        elif here.key is None:
            self.key(here, value, event)
        else:
            here.value[here.key] = value
            here.nodes[here.key] = Node(value, event.start_mark, event.end_mark, style)
            here.key = None

    def scalar_with_pairs(self, event: Any) -> None:
        """A text of JSON whose characters may stand in two escapes each; the parser has seen others in their place."""
        written = self.text[event.start_mark.index : event.end_mark.index]
        if event.style == '"' and PAIR.search(written):
            try:
                event.value = json.loads(written)
            except ValueError:
                self.say("yaml-syntax", "this text has escapes of JSON, and is not JSON", event, "write the characters")
        self.scalar(event)

    def plain(self, event: Any) -> Any:
        """A plain word may be a number, true, false or null."""
        try:
            return plain_value(event.value)
        except BadScalar as bad:
            self.say("bad-number", str(bad), event, "put it in quotes if it is meant as text")
            return 0

    def decorated(self, event: Any, value: Any) -> None:
        if event.tag is not None:
            self.tagged(event)
        if event.anchor is not None:
            node = Node(value, event.start_mark, event.end_mark, event.style)
            self.anchors[event.anchor] = _Anchored(node, 1, 0)
        if len(event.value) > MAX_TEXT:
            self.stop(
                "too-large", f"a text has more than {MAX_TEXT:,} characters", event, "read it from a file in a step"
            )

    def key(self, here: _Open, key: Any, event: Any) -> None:
        here.key = key if isinstance(key, str) else str(key)
        if here.key is not key:
            self.say("bad-key", f"the key `{event.value}` is not text", event, "put it in quotes")
        elif key in here.keys:
            first = here.keys[key].line + 1
            self.say("duplicate-key", f"the key `{_cut(key)}` is here twice; first in line {first}", event, "keep one")
        elif key == "<<" and event.style == "":
            self.say("yaml-merge", "merge keys are not read", event, "write the keys out where they belong")
        else:
            here.keys[key] = event.start_mark

    def start(self, event: Any) -> None:
        if self.here.keys is not None and self.here.key is None:
            self.collection_as_key(event)
        if len(self.open) >= MAX_DEPTH:
            self.stop("too-deep", f"maps and lists are nested more than {MAX_DEPTH} deep", event, "use fewer levels")
        if self.nodes > MAX_NODES:
            self.too_many(event)
        if event.tag is not None:
            self.tagged(event)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        self.open.append(self.here)
        is_map = type(event) is MappingStartEvent
        self.here = _Open({}, {}, {}, event, self.nodes) if is_map else _Open([], [], None, event, self.nodes)
        self.nodes += 1

    def end(self, event: Any) -> None:
        done = self.here
        here = self.here = self.open.pop()
        node = Node(done.value, done.event.start_mark, done.event.end_mark, "", done.nodes, done.keys)
        if done.event.anchor is not None:
            self.anchors[done.event.anchor] = _Anchored(node, self.nodes - done.before, done.height)
        if here.height <= done.height:
            here.height = done.height + 1
        self.put(here, node)

    def put(self, here: _Open, node: Node) -> None:
        if here.keys is None:
            here.value.append(node.value)
            here.nodes.append(node)
        else:
            here.value[here.key] = node.value
            here.nodes[here.key] = node
            here.key = None

    def alias(self, event: Any) -> None:
        self.aliases += 1
        if self.aliases > MAX_ALIASES:
            self.stop("too-many-aliases", f"there are more than {MAX_ALIASES} aliases", event, "write the values out")
        if event.anchor not in self.anchors:
            self.stop("yaml-alias", f"there is no anchor `&{event.anchor}` before this", event, QUOTE_STAR)
        anchored = self.anchors[event.anchor]
        if anchored is None:
            self.stop("yaml-alias", f"`*{event.anchor}` is inside what it names", event, "write the value out")
        if self.here.keys is not None and self.here.key is None:
            self.stop("bad-key", "an alias cannot be a key", event, "write the key out")
        self.nodes += anchored.size
        if self.nodes > MAX_NODES:
            self.too_many(event)
        if len(self.open) + anchored.height > MAX_DEPTH:
            self.stop("too-deep", f"maps and lists are nested more than {MAX_DEPTH} deep", event, "use fewer levels")
        self.here.height = max(self.here.height, anchored.height + 1)
        there = anchored.node
        node = Node(there.value, event.start_mark, event.end_mark, "*", there.nodes, there.keys)
        self.put(self.here, node)

    def collection_as_key(self, event: Any) -> NoReturn:
        if self.text.startswith("{{", event.start_mark.index - 1):
            place = Place(event.start_mark.line + 1, event.start_mark.column)  # of the first of the two
            self.problems.append(Problem("unquoted-template", UNQUOTED, place, QUOTE_TEMPLATE, length=2))
            raise _Stop
        self.stop("bad-key", "a list or a map cannot be a key", event, "a key is text")

    def tagged(self, event: Any) -> None:
        self.say("yaml-tag", "tags are not read", event, "leave it out")

    def too_many(self, event: Any) -> NoReturn:
        hint = "split the playbook, or read large data in a step"
        self.stop("too-large", f"there are more than {MAX_NODES:,} keys and values", event, hint)


def _single(pair: re.Match[str]) -> str:
    """Return something of the same length that can be read, so that all places stay the same."""
    return r"\u0020\u0020"


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"
