"""Compiles blocks to steps and arcs: the steps inside a block, and additional steps that only connect them."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from msgspec import Struct, structs

from refold.core.plan import VISIT_LIMIT, Arc
from refold.playbooks.blocks import generated_steps
from refold.playbooks.blocks.generated_steps import (
    Way,
    expression,
    otherwise,
    router,
    values_of,
    way,
    ways_of,
    with_ways,
)
from refold.playbooks.blocks.outline import Outline
from refold.playbooks.key_types import block_word
from refold.playbooks.language.blocks import MOST_PASSES
from refold.playbooks.reader.reading import Fields, Reading, TooMany
from refold.playbooks.steps import StepDraft, Value
from refold.playbooks.yaml.text import Node

MOST_VISITS = 1_000_000_000
MOST_ARCS = 100_000  # each arc for failures of a block is one of every step inside

Catch = Callable[[str, Node], Sequence[Way]]
"""Returns the arcs for a failure of the step of that name, if the step takes no arc of its own."""


class Site(Struct, frozen=True):
    """The surroundings of a list of items: what follows, which arcs handle failures, how many visits are allowed."""

    after: str  # a step, or nothing
    catch: Catch
    times: int = 1


class Block(Struct, frozen=True):
    name: str
    fields: Fields
    at: Node
    site: Site  # of what stands inside
    own: Sequence[Way]  # its own arcs
    mode: Any

    def part(self, name: str) -> str:
        return f"{self.name}.{name}"

    def key(self, name: str) -> str:
        """A key in the context of the run. It has a dot, so no playbook can set it."""
        return f"{self.name}.{name}"

    def read(self, name: str) -> str:
        return f"ctx['{self.key(name)}']"


def compile_blocks(
    reading: Reading, items: list[Fields], read_one: Callable[[Fields], StepDraft], final: Collection[str]
) -> tuple[list[StepDraft], dict[str, str]]:
    """Return the steps of a workflow, and the entry step of each block; `final` are steps that run at the end."""
    maker = _Maker(Outline(reading, items), read_one)
    behind = [maker.outline.entry(item) if maker.outline.name(item) not in final else "" for item in items[1:]]
    for item, after in zip(items, [*behind, ""], strict=True):
        if block_word(item.node):
            maker.block(item, maker.outline.number(items), Site(after, _nobody))
        else:
            maker.drafts.append(maker.read(item, maker.outline.number(items)))
    return maker.drafts, maker.outline.entries


def _nobody(name: str, at: Node) -> Sequence[Way]:
    return ()


class _Maker:
    def __init__(self, outline: Outline, read_one: Callable[[Fields], StepDraft]) -> None:
        self.outline, self._read_one = outline, read_one
        self.drafts: list[StepDraft] = []
        self._made = 0

    def read(self, item: Fields, number: int) -> StepDraft:
        """A step of the file; its arcs to blocks lead to their entry steps."""
        draft = self._read_one(item)
        return with_ways(draft, [self._led(each, number) for each in ways_of(draft)])

    def _led(self, way: Way, number: int) -> Way:
        node = way.fields.node.nodes["step"] if isinstance(way.fields.node.value, dict) else way.fields.node
        to = self.outline.resolved(way.arc.to, node, number)
        return Way(Fields(way.fields.node, {**way.fields.values, "step": to}), structs.replace(way.arc, to=to))

    def body(self, items: list[Fields], site: Site) -> None:
        """Each item is followed by the next one, unless it takes an arc of its own."""
        number = self.outline.number(items)
        follows = [*map(self.outline.entry, items[1:]), site.after]
        for item, after in zip(items, follows, strict=True):
            here = structs.replace(site, after=after)
            if block_word(item.node):
                self.block(item, number, here)
            else:
                self._step(item, number, here)

    def _step(self, item: Fields, number: int, site: Site) -> None:
        draft = self.read(item, number)
        draft.within = self.outline.around[number]
        if draft.name:
            limit = item.get("visit_limit", min(VISIT_LIMIT * site.times, MOST_VISITS))
            self.drafts.append(self._sited(draft, site, visit_limit=limit))

    def _sited(self, draft: StepDraft, site: Site, **changes: Any) -> StepDraft:
        at = draft.node.nodes["step"]
        onward = [way(at, site.after)] if site.after else []
        more = [*otherwise(draft, "success", onward), *otherwise(draft, "failure", site.catch(draft.name, at))]
        self._made += len(more)
        if self._made > MOST_ARCS:
            message = f"blocks would be made of more than {MOST_ARCS:,} arcs"
            self.outline.reading.at(at, "too-large", message, "give the blocks fewer arcs for failures, or fewer steps")
            raise TooMany
        return with_ways(draft, [*ways_of(draft), *more], **changes)

    def _caught(self, draft: StepDraft, site: Site) -> StepDraft:
        """A step of a block; its failures are failures of the block."""
        return self._sited(draft, structs.replace(site, after=""))

    def block(self, item: Fields, number: int, site: Site) -> None:
        """Compile a block; its own arcs are for what follows it and for failures inside."""
        name, word = self.outline.name(item), block_word(item.node)
        following: Fields | None = item.get("next")
        own = [self._led(_written(arc), number) for arc in _arcs(following)]
        block = Block(name, item, item.node.nodes[word], _inside(own, site), own, _mode(following))
        first = len(self.drafts)
        if word == "parallel":
            self._parallel(block, site)
            self.drafts[-1].values += values_of(_arcs(following))
            return
        ways = [each for each in own if each.arc.on != "failure"]
        plain = len(ways) == 1 and _is_plain(ways[0].arc)
        after = ways[0].arc.to if plain else site.after
        needs_end = (bool(ways) and not plain) or (word == "until" and not after)
        inside = structs.replace(block.site, after=block.part("end") if needs_end else after)
        block = structs.replace(block, site=inside)
        {"if": self._if, "while": self._while, "until": self._until}[word](block)
        if needs_end:
            end = router(name, block.part("end"), block.at, ways, mode=block.mode)
            self.drafts.append(self._sited(end, structs.replace(inside, after=site.after)))
        self.drafts[first].values += values_of(_arcs(following))

    def _if(self, block: Block) -> None:
        fields, after = block.fields, block.site.after
        asked = [fields, *fields.get("elif", [])]
        bodies = [each.get("then", []) for each in asked]
        ways = [
            way(each.node.nodes["if"], self.outline.entry(body[0]), each.get("if"))
            for each, body in zip(asked, bodies, strict=True)
            if body and "if" in each.values
        ]
        other: list[Fields] = fields.get("else", [])
        last = self.outline.entry(other[0]) if other else after
        ways += [way(block.at, last)] if last else []
        choose = self._caught(router(block.name, block.part("choose"), block.at, ways), block.site)
        choose.values += [Value(each.node.nodes["if"], "run") for each in asked if "if" in each.values]
        self.drafts.append(choose)
        for body in [*bodies, *([other] if other else [])]:
            self.body(body, block.site)

    def _while(self, block: Block) -> None:
        """begin -> check -> pass -> body -> check ..."""
        check = router(block.name, block.part("check"), block.at, [*self._asked(block, "while", block.part("pass"))])
        if block.site.after:
            check = with_ways(check, [*ways_of(check), way(block.at, block.site.after)])
        self.drafts += [self._begin(block, "check"), self._caught(check, block.site), self._pass(block)]
        check.values += [Value(block.fields.node.nodes["while"], "run")]
        self._passes(block, "check")

    def _until(self, block: Block) -> None:
        """begin -> pass -> body -> check -> pass ..."""
        self.drafts += [self._begin(block, "pass"), self._pass(block)]
        ways = [*self._asked(block, "until", block.site.after), way(block.at, block.part("pass"))]
        check = self._caught(router(block.name, block.part("check"), block.at, ways), block.site)
        check.values += [Value(block.fields.node.nodes["until"], "run")]
        self._passes(block, "check")
        self.drafts.append(check)

    def _asked(self, block: Block, word: str, to: str) -> Iterator[Way]:
        if word in block.fields.values:
            yield way(block.at, to, block.fields.get(word))

    def _begin(self, block: Block, then: str) -> StepDraft:
        sets: dict[str, Any] = {f"ctx.{block.key('passes')}": 0}
        if "stuck_after" in block.fields.values:
            sets |= {f"ctx.{block.key('same')}": 0, f"ctx.{block.key('last')}": None}
        return router(block.name, block.part("begin"), block.at, [way(block.at, block.part(then), set=sets)])

    def _pass(self, block: Block) -> StepDraft:
        """The step that counts passes and checks whether another one is allowed."""
        most, body = block.fields.get("max_iterations", MOST_PASSES), block.fields.get("do", [])
        passes = block.read("passes")
        sets = {f"ctx.{block.key('passes')}": f"{{{{ {passes} + 1 }}}}"}
        first = self.outline.entry(body[0]) if body else block.part("check")
        ways = [way(block.at, first, f"{{{{ {passes} < {most} }}}}", set=sets)]
        last = block.part("limit") if block.fields.get("on_max", "fail") == "fail" else block.site.after
        return router(block.name, block.part("pass"), block.at, [*ways, *([way(block.at, last)] if last else [])])

    def _passes(self, block: Block, back: str) -> None:
        fields = block.fields
        body: list[Fields] = fields.get("do", [])
        most = fields.get("max_iterations", MOST_PASSES)
        stuck = fields.get("stuck_after")
        onward = block.part("again" if stuck else back)
        if body:
            times = min(block.site.times * most, MOST_VISITS)
            self.body(body, structs.replace(block.site, after=onward, times=times))
        if stuck and body:
            self._again(block, back, stuck, body[-1])
        if fields.get("on_max", "fail") == "fail":
            said = generated_steps.used_up(block.name, most, block.at)
            self.drafts.append(self._caught(said, block.site))

    def _again(self, block: Block, back: str, most: int, last: Fields) -> None:
        """The step that compares what a pass has changed with the pass before."""
        value = self._watched(block, last)
        is_same = f"{block.read('passes')} > 1 and {value} == {block.read('last')}"
        same = f"{block.read('same')} + 1"
        sets = {
            f"ctx.{block.key('same')}": f"{{{{ {same} if {is_same} else 0 }}}}",
            f"ctx.{block.key('last')}": f"{{{{ {value} }}}}",
        }
        ways = [
            way(block.at, block.part("stuck"), f"{{{{ {is_same} and {same} >= {most} }}}}"),
            way(block.at, block.part(back), set=sets),
        ]
        again = self._caught(router(block.name, block.part("again"), block.at, ways), block.site)
        if "stuck_on" in block.fields.values:
            again.values += [Value(block.fields.node.nodes["stuck_on"], "run")]
        self.drafts += [again, self._caught(generated_steps.stuck(block.name, most, block.at), block.site)]

    def _watched(self, block: Block, last: Fields) -> str:
        if "stuck_on" in block.fields.values:
            return f"({expression(block.fields.get('stuck_on'))})"
        word, name = block_word(last.node), self.outline.name(last)
        if word not in ("", "parallel"):
            message = f"`stuck_after` of `{block.name}` does not know what a pass should change: it ends with a block"
            hint = 'add `stuck_on: "{{ … }}"`'
            self.outline.reading.at_key(block.fields.node, "stuck_after", "missing-key", message, hint)
        return f"(steps['{name}'] | default(none))"

    def _parallel(self, block: Block, site: Site) -> None:
        """fork -> branches -> the deciding step, which has the name of the block."""
        branches: dict[str, list[Fields]] = {
            name: body for name, body in block.fields.get("branches", {}).items() if body
        }
        plan = generated_steps.branching(self.outline.reading, block.fields, block.name, list(branches))
        entries = [self.outline.entry(body[0]) for body in branches.values()]
        ways = [way(block.at, entry, set=plan.blank if not n else None) for n, entry in enumerate(entries)]
        ways = ways or [way(block.at, block.name)]  # that there are none was told
        self.drafts.append(router(block.name, block.part("fork"), block.at, ways, mode="inclusive"))
        for name, body in branches.items():
            self.body(body, structs.replace(site, after=plan.onward, catch=plan.catch(name)))
        self.drafts += plan.between(block.at)
        verdict = with_ways(plan.verdict(block.at), block.own, mode=block.mode)
        self.drafts.append(self._sited(verdict, site))


def _arcs(following: Fields | None) -> list[Fields]:
    return [arc for arc in following.get("arcs", []) if "step" in arc.values] if following is not None else []


def _mode(following: Fields | None) -> str:
    """The mode of arcs, as on a step: the short forms have no spec."""
    mode: str = following.get("spec", following).get("mode", "exclusive") if following is not None else "exclusive"
    return mode


def _written(fields: Fields) -> Way:
    arc = Arc(
        to=fields.get("step"),
        on=fields.get("on", "success"),
        when=fields.get("when"),
        set=fields.get("set", {}),
        each_pass=fields.get("each_pass", False),
    )
    return Way(fields, arc)


def _is_plain(arc: Arc) -> bool:
    return arc.when is None and not arc.set and not arc.each_pass


def _inside(own: Sequence[Way], site: Site) -> Site:
    """The arcs that handle failures of a block: first its own, then those of the blocks around it."""
    ways = [Way(each.fields, structs.replace(each.arc, on="failure")) for each in own if each.arc.on != "success"]

    def catch(name: str, at: Node) -> Sequence[Way]:
        sure = any(each.arc.when in (None, True) for each in ways)
        return [*ways, *(() if sure else site.catch(name, at))]

    return structs.replace(site, catch=catch)
