"""The command `sim`: a workflow under many seeds of faults."""

import shlex
import sys
from collections.abc import Sequence
from typing import Any

import click
from msgspec import Struct, to_builtins

from refold.cli import exits, words
from refold.cli import output as out
from refold.cli.commands.playbooks import is_code, read_file
from refold.cli.options import binding_arguments, bindings_options, inputs, output_option, quiet_option, value_of
from refold.playbooks.playbook import Playbook
from refold.python.load import load

TOLD = 5  # names shown in a line


class SimOptions(Struct, frozen=True, kw_only=True):
    """The options of the command line."""

    target: str
    unit: str | None = None
    seeds: int
    seed: int
    input: Sequence[str]
    input_file: str | None
    replay: Sequence[str]
    signal: Sequence[str]
    answer: str
    fake: Sequence[str]
    any_result: bool
    output: str
    quiet: bool
    bindings: str | None = None
    agent: str | None = None


@click.command()
@click.argument("target", metavar="FILE")
@click.argument("unit", required=False, metavar="[UNIT]")
@click.option("-n", "--seeds", type=click.IntRange(1), default=200, show_default=True, help="How many seeds are tried.")
@click.option("--seed", type=int, default=0, show_default=True, help="The first of them.")
@click.option("-i", "--input", multiple=True, metavar="KEY=VALUE", help="An input; JSON, or else text.")
@click.option("--input-file", metavar="FILE", help="Inputs, as a JSON object or in YAML; - is stdin.")
@click.option("--replay", multiple=True, metavar="FILE", help="Results of tools, from `refold runs record`.")
@click.option("--signal", multiple=True, metavar="NAME=VALUE", help="The value of a signal that the run waits for.")
@click.option("--answer", default="yes", metavar="VALUE", help="The answer to every question (yes).")
@click.option("--fake", multiple=True, metavar="NAME", help="A step or kind of Python code that is not to be run.")
@click.option("--any-result", is_flag=True, help="The result may depend on order and time: do not compare it.")
@bindings_options
@output_option
@quiet_option
def sim(**given: Any) -> int:
    """Run a playbook or a Python workflow under simulated faults.

    FILE is a playbook, or a Python workflow `module:Class`. UNIT is one of several workflows in a file. Processes are
    killed between any two commits, leases are lost, reports come late and in another order, the store fails; time is
    virtual and nothing leaves this process. Tools are faked: by recordings, by the declared result of their step, or by
    a value of the usual shape; Python code of a playbook is run, once for each input. Each run must end, finish no step
    twice, and have the same result as an undisturbed one.
    """
    from refold.testing.simulator.trials import SimulationOptions, simulate_all, subject_of

    options = SimOptions(**given)
    asked = SimulationOptions(
        seeds=options.seeds,
        seed=options.seed,
        replay=options.replay,
        signals=inputs(options.signal, None),
        answer=value_of(options.answer),
        fake=options.fake,
        any_result=options.any_result,
    )
    target = load(options.target) if is_code(options.target) else _read(options)
    subject = subject_of(target, inputs(options.input, options.input_file), asked)
    simulated = simulate_all(subject, asked, _teller(options))
    if options.output != "table":
        out.print_json(to_builtins(simulated), options.output)
    else:
        _tell(simulated, options)
    return exits.OK if simulated.broken is None else exits.FAILED


def _read(options: SimOptions) -> Playbook:
    bound = binding_arguments(options.bindings, options.agent)
    return read_file(options.target, bound=bound, unit=options.unit or "")


def _teller(options: SimOptions) -> Any:
    shows = not options.quiet and out.is_terminal(sys.stderr)

    def tell(simulated: Any) -> None:
        if shows and simulated.seeds % 20 == 0:
            out.print_message(f"{simulated.seeds} of {options.seeds} seeds, {sum(simulated.faults.values())} faults")

    return tell


def _tell(simulated: Any, options: SimOptions) -> None:
    out.print_data(f"{simulated.workflow}: {words.counted(simulated.seeds, 'seed')}, {_counted(simulated.faults)}")
    out.print_data(f"undisturbed: {out.printable(simulated.undisturbed)} ({simulated.commits} commits)")
    if simulated.made_up:
        names = ", ".join(simulated.made_up[:TOLD])
        out.print_data(
            f"made up: the results of {names}; `output.schema` of a step, or --replay, says what they are like"
        )
    if simulated.unrecorded:
        out.print_data(f"not recorded: {', '.join(simulated.unrecorded[:TOLD])}")
    if simulated.excused:
        out.print_data(
            f"not compared: {simulated.excused} seeds, in which a step was lost too often or ran out of its time"
        )
    broken = simulated.broken
    if broken is None:
        same = f"{simulated.compared} ended as the undisturbed one" if simulated.compared else "all of them ended"
        out.print_data(f"every promise was kept: {same}, and no finished step ran again")
        return
    out.print_data(f"seed {broken.seed} broke a promise: {out.printable(broken.why)}")
    for line in broken.history:
        out.print_data(f"  {out.printable(line)}")
    if broken.why.startswith("it ended as"):
        out.print_data("if its result may depend on order and time, --any-result says so")
    out.print_data(f"again: {_again(options, broken.seed)}")


def _counted(faults: dict[str, int]) -> str:
    told = {"cut": "processes killed at a commit", "crash": "killed elsewhere", "stall": "stalled beyond their leases"}
    told |= {"error": "refused calls of the store", "applied": "lost answers of it"}
    told |= {"unheard": "lost rings", "doubled": "doubled rings"}
    return ", ".join(f"{faults[kind]} {name}" for kind, name in told.items() if faults.get(kind)) or "no faults"


def _again(options: SimOptions, seed: int) -> str:
    words = ["refold", "sim", options.target, "-n", "1", "--seed", str(seed)]
    for name, values in (("-i", options.input), ("--replay", options.replay), ("--signal", options.signal)):
        words += [part for value in values for part in (name, value)]
    words += ["--input-file", options.input_file] if options.input_file else []
    words += ["--answer", options.answer] if options.answer != "yes" else []
    words += [part for value in options.fake for part in ("--fake", value)]
    return shlex.join(words + (["--any-result"] if options.any_result else []))
