"""The commands as one turn sees and changes them: read once, changed in memory, written together."""

from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec import Struct

from refold.core.codec import decode_command
from refold.core.commands import Command
from refold.core.facts import SECOND, Instant
from refold.core.state import PAUSED
from refold.ports import Abilities, Lease
from refold.stores.sqlite import queries
from refold.stores.sqlite.file import File
from refold.stores.sqlite.lanes import InFile, InFileOf, InTurn, Picker, Waiting
from refold.stores.sqlite.rows import HELD, LATER, LEASED, WAITING, Lane, Queued, Values, queued, read_queued

Key = tuple[str, str]
"""Run and command."""


class Touched(Struct):
    """A run's place in a lane, where its first command may be another one now."""

    turn: int | None = None  # what the first one gets; None: what the lane has, or a new one
    returned: int = 0  # commands that came back and may stand before the one that has the turn


class Commands:
    """Within one transaction. `status` tells how a run stands, `number` gives numbers that only grow."""

    def __init__(self, file: File, namespace: str, status: Callable[[str], str], number: Callable[[], int]) -> None:
        self.file, self.namespace, self.status, self.number = file, namespace, status, number
        self._known: dict[Key, Queued | None] = {}
        self._fresh: dict[Key, Queued] = {}  # to be added
        self._moved: dict[Key, Queued] = {}  # to be changed
        self._removed: dict[Key, None] = {}
        self._touched: dict[Lane, Touched] = {}
        self._floor: int | None = None
        self._picker: Picker | None = None

    def load(self, run: str, ids: Collection[str]) -> None:
        """Read these commands; what follows cannot fail then."""
        for id in ids:
            if (run, id) not in self._known:
                row = self.file.row(queries.COMMAND, (self.namespace, run, id))
                self._known[run, id] = None if row is None else read_queued(row)
        if self._floor is None:
            row = self.file.row(queries.FLOOR, (self.namespace,))
            self._floor = 0 if row is None else int(row[0])

    def get(self, run: str, id: str) -> Queued | None:
        self.load(run, (id,))
        return self._known[run, id]

    def claimed(self, run: str) -> frozenset[str]:
        self.flush()
        return frozenset(str(row[0]) for row in self.file.rows(queries.CLAIMED, (self.namespace, run)))

    def issue(self, run: str, order: Command, data: bytes, plan: str, now: Instant) -> None:
        """Anew and free to claim; of one that is there, generation and losses live on."""
        key = (run, order.id)
        old = self._known[key]
        fresh = queued(run, order, data, plan, self.number())
        fresh.generation, fresh.losses = (self._floor or 0, 0) if old is None else (old.generation, old.losses)
        fresh.state = LATER if order.not_before > now else WAITING
        self.remove(run, order.id)
        self._known[key] = self._fresh[key] = fresh

    def hold(self, run: str, id: str) -> None:
        command = self._known[run, id]
        if command is not None:
            self._leave(command)
            _free(command)
            command.state = HELD
            self.change(command)

    def remove(self, run: str, id: str) -> None:
        self._picker = None
        key = (run, id)
        command = self._known[key]
        if command is None:
            return
        self._known[key] = None
        self._moved.pop(key, None)
        if self._fresh.pop(key, None) is None:
            self._leave(command)
            self._removed[key] = None

    def change(self, command: Queued) -> None:
        """It is stored as it reads now."""
        self._picker = None
        key = (command.run, command.id)
        self._known[key] = command
        if key not in self._fresh:
            self._moved[key] = command

    def take_back(self, command: Queued, losses: int) -> None:
        """From its holder, to the place it was issued in."""
        _free(command)
        command.losses = losses
        self._return(command)

    def pause(self, run: str) -> None:
        """A paused run stands in no lane."""
        self.flush()
        self.file.write(queries.CLEAR_TURNS, [(self.namespace, run)])
        self._known = {}

    def resume(self, run: str) -> None:
        """Behind the others in each of its lanes."""
        self.flush()
        for queue, priority in self.file.rows(queries.LANES_OF_RUN, (self.namespace, run)):
            self._touch((run, queue, priority))
        self.flush()

    def claim(self, can: Abilities, lease_for: float, limit: int, now: Instant) -> list[Lease]:
        if self._picker is None or self._picker.can != can:
            self._picker = self._pick_for(can, now)
        leases: list[Lease] = []
        while len(leases) < limit:
            command = self._picker.take()
            if command is None:
                break
            leases.append(self._lease(command, can.worker, now, now + round(lease_for * SECOND)))
        return leases

    def is_idle(self, can: Abilities, now: Instant) -> bool:
        """Nothing to claim for this worker, as far as one can see without keeping others from writing."""
        if self.file.row(queries.ANY_LATER, (self.namespace, now)) is not None:
            return False
        return Picker(self._in_file(can), can).is_empty()

    def flush(self) -> None:
        """One statement a table and kind of change, however many commands."""
        self._picker = None
        namespace = self.namespace
        if self._removed:
            self.file.write(queries.REMOVE_COMMAND, [(namespace, *key) for key in self._removed])
        if self._moved:
            rows = [(*each.moving(each.turn), namespace, *key) for key, each in self._moved.items()]
            self.file.write(queries.MOVE_COMMAND, rows)
        if self._fresh:
            rows = [(namespace, *each.issued(), *each.moving(self._first_turn(each))) for each in self._fresh.values()]
            self.file.write(queries.ADD_COMMAND, rows)
            self._known = {}  # which of them have a turn, only the file knows
        self._removed, self._moved, self._fresh = {}, {}, {}
        if self._touched:
            self._set_turns()

    def _pick_for(self, can: Abilities, now: Instant) -> Picker:
        """From this turn alone if nothing else waits, and then what it issued is stored once, as leased."""
        self._release(now)
        if not self._touched:
            picker = Picker(self._in_file(can), can)
            if picker.is_empty():
                free = (each for each in self._fresh.values() if each.state == WAITING and not self._is_paused(each))
                return Picker(InTurn(free), can)
            if not (self._fresh or self._moved or self._removed):
                return picker
        self.flush()
        return Picker(self._in_file(can), can)

    def _in_file(self, can: Abilities) -> Waiting:
        return InFile(self.file, self.namespace) if can.runs is None else InFileOf(self.file, self.namespace, can.runs)

    def _release(self, now: Instant) -> None:
        """What may start by now joins its lane, in the place it was issued in."""
        for row in self.file.rows(queries.DUE_LATER, (self.namespace, now)):
            command = self._known.setdefault((row[0], row[1]), read_queued(row))
            if command is not None and command.state == LATER and (row[0], row[1]) not in self._fresh:
                self._return(command)

    def _lease(self, command: Queued, worker: str, now: Instant, until: Instant) -> Lease:
        key = (command.run, command.id)
        self._known[key] = command
        if key not in self._fresh:
            self._touch(command.lane()).turn = self.number()  # the others of the lane come first now
            self._moved[key] = command
        order = decode_command(command.data)
        command.state, command.turn, command.worker = LEASED, None, worker
        command.generation += 1
        command.until, command.claimed_at, command.beat_at = until, now, now
        command.deadline = None if order.timeout is None else now + round(order.timeout * SECOND)
        return command.lease(order)

    def _return(self, command: Queued) -> None:
        command.state = WAITING
        self.change(command)
        self._touch(command.lane()).returned += 1

    def _leave(self, command: Queued) -> None:
        """The next one of its run inherits its turn."""
        if command.turn is not None:
            self._touch(command.lane()).turn = command.turn
            command.turn = None

    def _touch(self, lane: Lane) -> Touched:
        return self._touched.setdefault(lane, Touched())

    def _first_turn(self, command: Queued) -> int | None:
        return command.place if command.state == WAITING and not self._is_paused(command) else None

    def _is_paused(self, command: Queued) -> bool:
        return self.status(command.run) == PAUSED

    def _set_turns(self) -> None:
        turns: list[tuple[int | None, str, str, str]] = []
        for (run, queue, priority), touched in self._touched.items():
            if self.status(run) == PAUSED:
                continue
            where = (self.namespace, run, queue, priority, 1 + touched.returned)
            changes = self._turns(self.file.rows(queries.FRONT, where), touched)
            turns += [(turn, self.namespace, run, id) for id, turn in changes]
        self._touched = {}
        if turns:
            self.file.write(queries.SET_TURN, turns)
            self._known = {}

    def _turns(self, front: Sequence[Values], touched: Touched) -> Iterable[tuple[str, int | None]]:
        """What changes so that the first one has the turn and no other."""
        if not front:
            return
        had = next((turn for _, turn in front if turn is not None), None)
        turn = touched.turn if touched.turn is not None else had if had is not None else self.number()
        first, *others = front
        if first[1] != turn:
            yield first[0], turn
        for id, other in others:
            if other is not None:
                yield id, None


def _free(command: Queued) -> None:
    command.worker, command.until, command.deadline = None, 0, None
