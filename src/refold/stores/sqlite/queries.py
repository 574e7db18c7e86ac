"""Every query by its name, each with a sentence; texts are constants, so each is prepared once."""

from typing import Final

BEGIN: Final = "begin immediate"
COMMIT: Final = "commit"
ROLLBACK: Final = "rollback"

OPENING: Final = """
    select runs.head, runs.status, runs.created_at, runs.summary, runs.seal,
        exists (select 1 from letters where namespace = ?1 and run = ?2),
        (select min(due) from timers where namespace = ?1 and run = ?2),
        (select floor from generations where namespace = ?1),
        runs.run is null and exists (select 1 from facts where namespace = ?1 and run = ?2)
    from (select 1) left join runs on runs.namespace = ?1 and runs.run = ?2"""
"""What a turn wants to know of a run first; also if there is no such run, or only its row is missing."""

OPENINGS: Final = """
    select wanted.value, runs.head, runs.status, runs.created_at, runs.summary, runs.seal,
        exists (select 1 from letters where namespace = ?1 and run = wanted.value),
        (select min(due) from timers where namespace = ?1 and run = wanted.value),
        (select floor from generations where namespace = ?1),
        runs.run is null and exists (select 1 from facts where namespace = ?1 and run = wanted.value)
    from json_each(?2) wanted left join runs on runs.namespace = ?1 and runs.run = wanted.value"""
"""The same of several runs at once."""

ADD_FACT: Final = "insert into facts values (?,?,?,?,?,?,?,?)"
"""A number that is taken fails the turn."""

FACTS: Final = """
    select number, at, data, turn, seal from facts
    where namespace = ? and run = ? and number > ? order by number limit ?"""
"""A run's log from a number on."""

SOME_FACTS: Final = """
    select number, at, data, turn, seal from facts
    where namespace = ? and run = ? and number in (select value from json_each(?)) order by number"""
"""Single facts by their numbers."""

LOGS: Final = "select run, max(number) from facts where namespace = ? group by run order by run"
"""Every run that has a log, and where its log ends."""

ADD_RUN: Final = """
    insert into runs (head, status, created_at, summary, seal, change, namespace, run, workflow, name, key, parent)
    values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
"""The row of a run that starts."""

GROW_RUN: Final = "update runs set head = ?, summary = ?, seal = ? where namespace = ? and run = ?"
"""The row of the run that changed last, under the same status as before: no index has to be touched."""

MOVE_RUN: Final = "update runs set head = ?, summary = ?, seal = ?, change = ? where namespace = ? and run = ?"
"""The row of a run that lists show under the same status as before: of the indexes, only that of changes is touched."""

CHANGE_RUN: Final = """
    update runs set head = ?, status = ?, summary = ?, seal = ?, change = ? where namespace = ? and run = ?"""
"""The row of a run that has another status now. All other indexes stay as they are."""

RENAME_RUN: Final = "update runs set workflow = ? where namespace = ? and run = ?"
"""The run follows another workflow."""

ADD_LABEL: Final = "insert or ignore into labels (namespace, run, label, created_at) values (?, ?, ?, ?)"
"""A label of a run that starts."""

LAST_CHANGED: Final = """
    select run, head, change, max(
        coalesce((select change from removed_changes where namespace = ?1), 0),
        coalesce((select max(change) from feed where namespace = ?1), 0))
    from runs indexed by runs_by_change where namespace = ?1 order by change desc limit 1"""
"""The run that changed last, and the highest number of a removed run, or of one whose row is lost. Under the writer's
lock the next number can be given."""

REMOVED_CHANGE: Final = """
    select '', 0, 0, max(
        coalesce((select change from removed_changes where namespace = ?1), 0),
        coalesce((select max(change) from feed where namespace = ?1), 0))"""
"""The same where there is no run."""

CHANGED: Final = """
    select run, head, change from runs indexed by runs_by_change
    where namespace = ? and change >= ? and (change > ? or head > ?) order by change limit ?"""
"""The runs that have changed since a position, those that changed first before the others."""

CLOSE_FEED: Final = """
    update feed set until = ?3 where namespace = ?1 and until is null
        and change = (select change from runs where namespace = ?1 and run = ?2)"""
"""What a run has written up to now belongs to its change before; called before the row of the run is written."""

ADD_TO_FEED: Final = """
    insert into feed (namespace, run, after, change, until, before)
    values (?1, ?2, ?3, ?4, null, coalesce((select change from runs where namespace = ?1 and run = ?2), 0))"""

FEED: Final = """
    select change, run, after, coalesce(until, (
        select max(number) from facts where facts.namespace = feed.namespace and facts.run = feed.run), 0)
    from feed where namespace = ? and change >= ? order by change limit ?"""
"""The end of each part is read together with it: what is written later may belong to another part."""

FEED_END: Final = """
    select change, run, after, coalesce(until, (
        select max(number) from facts where facts.namespace = feed.namespace and facts.run = feed.run), 0)
    from feed where namespace = ? order by change desc limit 1"""

RUN: Final = "select head, status, created_at, summary, seal from runs where namespace = ? and run = ?"
"""One line of the list."""

_RUNS_BY: Final = {
    "age": "runs indexed by runs_by_age where namespace = ?",
    "status": "runs indexed by runs_by_status where namespace = ? and status = ?",
    "workflow": "runs indexed by runs_by_workflow where namespace = ? and workflow = ?",
    "name": "runs indexed by runs_by_name where namespace = ? and name = ? and name <> ''",
    "key": "runs indexed by runs_by_key where namespace = ? and key = ? and key <> ''",
    "parent": "runs indexed by runs_by_parent where namespace = ? and parent = ?",
    "label": "labels indexed by runs_by_label where namespace = ? and label = ?",
}
"""The index that finds runs by one thing that was asked for."""


_NEWEST: Final = "order by created_at desc, run desc"

ALSO: Final = {
    "status": "runs.status = ?",
    "workflow": "runs.workflow = ?",
    "name": "runs.name = ?",
    "key": "runs.key = ?",
    "parent": "runs.parent = ?",
    "label": "exists (select 1 from labels also where also.namespace = runs.namespace and also.run = runs.run"
    " and also.label = ?)",
    "error": r"cast(summary as text) like ? escape '\'",  # it may be elsewhere in the summary
}
"""Conditions on rows that an index has found by something else."""


def runs_by(what: str, bounds: str, also: str = "") -> str:
    """The newest runs first, found by an index, within bounds such as `and created_at < ?`, with further conditions."""
    if what != "label":
        columns = "run, head, status, created_at, summary, seal"
        return f"select {columns} from {_RUNS_BY[what]} {bounds} {also} {_NEWEST} limit ?"
    labelled = f"select namespace, run, created_at from {_RUNS_BY[what]} {bounds}"
    return f"""
        select runs.run, head, status, runs.created_at, summary, seal from ({labelled}) labelled
        join runs on runs.namespace = labelled.namespace and runs.run = labelled.run where true {also}
        order by labelled.created_at desc, labelled.run desc limit ?"""


def edge_of_runs_by(what: str, bounds: str) -> str:
    """The place of the row that comes after so many that an index finds."""
    return f"select created_at, run from {_RUNS_BY[what]} {bounds} {_NEWEST} limit 1 offset ?"


def count_runs_by(what: str, bounds: str) -> str:
    """How many runs an index finds, up to a number."""
    return f"select count(*) from (select 1 from {_RUNS_BY[what]} {bounds} limit ?)"


RUNS_CALLED: Final = """
    select run, head, status, created_at, summary, seal from runs indexed by runs_by_age
    where namespace = ?1 and (?2 is null or status = ?2)
        and (substr(run, 1, length(?3)) = ?3 or iif(json_valid(cast(summary as text)),
            json_extract(cast(summary as text), '$.name'), null) = ?3)
    order by created_at desc, run desc limit ?4"""
"""Runs whose id begins with a text, or whose name it is: what people type."""

PLAN: Final = "select data from plans where namespace = ? and hash = ?"
"""A plan by its hash."""

PLANS: Final = "select hash from plans where namespace = ? and substr(hash, 1, ?) = ? order by hash limit ?"
"""Plans whose hashes begin so."""

PUT_PLAN: Final = "insert or ignore into plans (namespace, hash, data) values (?, ?, ?)"
"""A plan is named by its hash, so the first one to come is as good as any other."""

_COMMAND: Final = """
    run, id, queue, priority, tool, place, not_before, plan,
    state, generation, losses, worker, until, deadline, beat_at, claimed_at, data, seal, turn, hand_backs,
    executor, share, lim, lane"""

COMMAND: Final = f"select {_COMMAND} from commands where namespace = ? and run = ? and id = ?"
"""One command, whatever its state."""

COMMANDS: Final = f"""
    select {_COMMAND} from commands
    where namespace = ? and run = ? and id in (select value from json_each(?))"""
"""Several commands of a run, whatever their state."""

CLAIMED: Final = f"select {_COMMAND} from commands where namespace = ? and run = ? and state = 'leased'"
"""The commands of a run that somebody holds."""

ADD_COMMAND: Final = f"""
    insert into commands (namespace, {_COMMAND})
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
        iif(?20 is null or exists (
            select 1 from commands indexed by commands_waiting
            where namespace = ?1 and run = ?2 and queue = ?4 and priority = ?5 and share = ?23 and lane = ?25
                and state = 'waiting'), null, coalesce((
            select turn from commands indexed by commands_waiting
            where namespace = ?1 and run = ?2 and queue = ?4 and priority = ?5 and share = ?23 and state = 'waiting'
            order by lane, place limit 1), ?20)),
        ?21, ?22, ?23, ?24, ?25)"""
"""A new command stands behind the others of its run, so it has a turn only if none of them waits in the lane: that of
the run in the line, if it has one."""

ADD_APART: Final = f"insert into commands values ({','.join('?' * 25)})"
"""A new command that stands in no lane: it is leased already, or has to wait for its moment. A short text, for to find
what was prepared costs time with every character."""

MOVE_COMMAND: Final = """
    update commands set state = ?, generation = ?, losses = ?,
        worker = ?, until = ?, deadline = ?, beat_at = ?, claimed_at = ?, seal = ?, turn = ?, hand_backs = ?
    where namespace = ? and run = ? and id = ?"""
"""Claimed, handed back, lost, held or released: all that can change once it is issued."""

REMOVE_COMMAND: Final = "delete from commands where namespace = ? and run = ? and id = ?"
"""Settled, withdrawn, or about to be issued again."""

SET_TURN: Final = "update commands set turn = ? where namespace = ? and run = ? and id = ?"
"""Where the run of this command stands in its lane; null: another command has the turn."""

CLEAR_TURNS: Final = "update commands set turn = null where namespace = ? and run = ? and turn is not null"
"""A paused run stands in no lane."""

LINES_OF_RUN: Final = """
    select distinct queue, priority, share from commands indexed by commands_waiting
    where namespace = ? and run = ? and state = 'waiting'"""
"""The lines in which a run has something waiting."""

FRONT: Final = """
    select id, turn, lane from commands indexed by commands_waiting
    where namespace = ? and run = ? and queue = ? and priority = ? and share = ? and lane = ? and state = 'waiting'
    order by place limit ?"""
"""The first commands of a run in a lane, one of which may have the turn."""

NEXT_LANE_OF_RUN: Final = """
    select min(lane) from commands indexed by commands_waiting
    where namespace = ? and run = ? and queue = ? and priority = ? and share = ? and state = 'waiting' and lane >= ?"""
"""The first lane from this one on in which a run has something waiting."""

QUEUES: Final = """
    with recursive waiting (queue) as (
        select min(queue) from commands indexed by commands_first where namespace = ?1 and turn is not null
        union all
        select (select min(queue) from commands indexed by commands_first
            where namespace = ?1 and turn is not null and queue > waiting.queue)
        from waiting where waiting.queue is not null)
    select queue from waiting where queue is not null"""
"""The queues that have something to claim; what waits in them costs nothing."""

QUEUES_OF_RUN: Final = """
    with recursive waiting (queue) as (
        select min(queue) from commands indexed by commands_waiting
        where namespace = ?1 and run = ?2 and state = 'waiting'
        union all
        select (select min(queue) from commands indexed by commands_waiting
            where namespace = ?1 and run = ?2 and state = 'waiting' and queue > waiting.queue)
        from waiting where waiting.queue is not null)
    select queue from waiting where queue is not null"""
"""The queues in which a run has something waiting."""

BEST_PRIORITY: Final = """
    select priority from commands indexed by commands_first
    where namespace = ? and queue = ? and turn is not null and priority < ? order by priority desc limit 1"""
"""The highest priority below another in which a queue has something to claim."""

NEXT_SHARE: Final = """
    select min(share) from commands indexed by commands_first
    where namespace = ? and queue = ? and priority = ? and turn is not null and share >= ?"""
"""The first share from this one on that has something to claim."""

NEXT_LANE: Final = """
    select min(lane) from commands indexed by commands_first
    where namespace = ? and queue = ? and priority = ? and share = ? and turn is not null and lane >= ?"""
"""The first lane from this one on that has something to claim."""

FIRST_IN_LANE: Final = f"""
    select {_COMMAND} from commands indexed by commands_first
    where namespace = ? and queue = ? and priority = ? and share = ? and lane = ? and turn > ? order by turn limit ?"""
"""The next run's first command, and the next run's, in the order of their turns."""

NEXT_IN_LANE: Final = f"""
    select {_COMMAND} from commands indexed by commands_waiting
    where namespace = ? and run = ? and queue = ? and priority = ? and share = ? and lane = ? and state = 'waiting'
        and place > ? order by place limit ?"""
"""What a run has behind one of its commands in a lane."""

BEST_PRIORITY_OF_RUN: Final = """
    select priority, turn from commands indexed by commands_waiting
    where namespace = ? and run = ? and queue = ? and state = 'waiting' and priority < ?
    order by priority desc, share, lane, place limit 1"""
"""The highest priority below another in which a run has something waiting in a queue; no turn: it is paused."""

NEXT_SHARE_OF_RUN: Final = """
    select min(share) from commands indexed by commands_waiting
    where namespace = ? and run = ? and queue = ? and priority = ? and state = 'waiting' and share >= ?"""
"""The first share from this one on in which a run has something waiting."""

LEASED_OF_LIMIT: Final = """
    select count(*) from (
        select 1 from commands indexed by commands_limited
        where namespace = ? and lim = ? and lim <> '' and state = 'leased' limit ?)"""
"""How many commands of a limit are leased, up to a number."""

LIMIT: Final = "select name, slots, rate, burst, tokens, at, seal from limits where namespace = ? and name = ?"
"""One limit."""

LIMITS: Final = "select name, slots, rate, burst, tokens, at, seal from limits where namespace = ? order by name"
"""All limits."""

PUT_LIMIT: Final = """
    insert or replace into limits (namespace, name, slots, rate, burst, tokens, at, seal)
    values (?, ?, ?, ?, ?, ?, ?, ?)"""
"""A limit, as an operator sets it or as claims have left it."""

ADD_LIMIT: Final = """
    insert or ignore into limits (namespace, name, slots, rate, burst, tokens, at, seal)
    values (?, ?, ?, ?, ?, ?, ?, ?)"""
"""The limit of a loop with a rate, unless it is there."""

REMOVE_LIMIT: Final = "delete from limits where namespace = ? and name = ?"
"""The operator does not want it any more."""

REMOVE_RATES: Final = "delete from limits where namespace = ? and substr(name, 1, length(?)) = ?"
"""The limits of the loops of a run that is removed."""

WEIGHT: Final = "select weight, seal from weights where namespace = ? and share = ?"
"""The weight of a share."""

WEIGHTS: Final = "select share, weight, seal from weights where namespace = ? order by share"
"""The weights that are set."""

PUT_WEIGHT: Final = "insert or replace into weights (namespace, share, weight, seal) values (?, ?, ?, ?)"
"""Set by an operator."""

REMOVE_WEIGHT: Final = "delete from weights where namespace = ? and share = ?"
"""The share has the weight of all others again."""

SHARE_SIZES: Final = """
    select share, sum(state in ('waiting', 'later')), sum(state = 'leased')
    from commands where namespace = ? and state <> 'held' and share <> '' group by share order by share"""
"""How much waits and is leased in each share."""

LIMIT_SIZES: Final = """
    select lim, sum(state in ('waiting', 'later')), sum(state = 'leased')
    from commands where namespace = ? and state <> 'held' and lim <> '' group by lim order by lim"""
"""How much waits and is leased for each limit."""

DUE_LATER: Final = f"""
    select {_COMMAND} from commands indexed by commands_later
    where namespace = ? and state = 'later' and not_before <= ?"""
"""Commands whose moment has come."""

ANY_LATER: Final = """
    select 1 from commands indexed by commands_later
    where namespace = ? and state = 'later' and not_before <= ? limit 1"""
"""Whether there is such a command."""

SOME_LATER: Final = "select 1 from commands indexed by commands_later where namespace = ? and state = 'later' limit 1"
"""Whether a command waits for its moment, whenever that is."""

ANYTHING: Final = """
    select 1 from commands indexed by commands_later where namespace = ?1 and state = 'later' and not_before <= ?2
    union all
    select 1 from commands indexed by commands_first where namespace = ?1 and queue = ?3 and turn is not null
    limit 1"""
"""Whether a queue may have something to claim."""

ANYTHING_AT_ALL: Final = """
    select 1 from commands indexed by commands_later where namespace = ?1 and state = 'later' and not_before <= ?2
    union all
    select 1 from commands indexed by commands_first where namespace = ?1 and turn is not null
    limit 1"""
"""Whether any queue may have something to claim."""

LEASES: Final = f"select {_COMMAND} from commands indexed by commands_leased where namespace = ? and state = 'leased'"
"""Everything that somebody holds: as many as there are busy slots."""

LEASES_OF_WORKER: Final = f"""
    select {_COMMAND} from commands indexed by commands_leased
    where namespace = ? and state = 'leased' and worker = ?"""
"""Everything that one worker holds."""

QUEUE_SIZES: Final = """
    select queue, sum(state in ('waiting', 'later')), sum(state = 'leased'),
        min(iif(state in ('waiting', 'later'), place, null))
    from commands where namespace = ? and state <> 'held' group by queue order by queue"""
"""How much waits and is leased in each queue; a place in the order of issue is the time of issue, or hardly later."""

MARK: Final = "select at, steady, boot, seal from marks where namespace = ?"
"""What the store's clock showed in a recent commit."""

PUT_MARK: Final = "insert or replace into marks (namespace, at, steady, boot, seal) values (?, ?, ?, ?, ?)"
"""What it shows now."""

FOREIGN: Final = "pragma data_version"
"""A number that changes when another connection has written, and not when this one has."""

FLOOR: Final = "select floor from generations where namespace = ?"
"""Where generations begin."""

RAISE_FLOOR: Final = """
    insert or replace into generations (namespace, floor) values (?1, ?2 + max(
        coalesce((select floor from generations where namespace = ?1), 0),
        coalesce((select max(generation) from commands where namespace = ?1), 0)))"""
"""Generations go on above every earlier one, also those of commands whose rows are gone."""

SET_TIMER: Final = "insert or replace into timers (due, seal, namespace, run, key) values (?, ?, ?, ?, ?)"
"""Set, or moved."""

CLEAR_TIMER: Final = "delete from timers where namespace = ? and run = ? and key = ?"
"""Rung, or no longer wanted."""

DUE_TIMERS: Final = "select key, due, seal from timers where namespace = ? and run = ? and +due <= ? order by +due, key"
"""What has come due in one run. The plus keeps SQLite from the index by due time, which has the timers of all runs."""

DUE_RUNS: Final = """
    select timers.run, timers.key, timers.due, timers.seal
    from timers indexed by timers_by_due
    join runs on runs.namespace = timers.namespace and runs.run = timers.run
    where timers.namespace = ? and timers.due <= ? and runs.status <> 'paused'
    order by timers.due"""
"""The timers whose time has come, of runs that go on, the longest due first."""

NEXT_DUE: Final = "select min(due) from timers indexed by timers_by_due where namespace = ? and due > ?"
"""When a timer is due after now."""

ADD_LETTER: Final = "insert or ignore into letters (namespace, run, key, data, seal) values (?, ?, ?, ?, ?)"
"""A letter whose key is unread there is left out, and the unread one keeps its place."""

REMOVE_LETTER: Final = "delete from letters where namespace = ? and run = ? and key = ?"
"""Read."""

LETTERS: Final = "select key, data, seal from letters where namespace = ? and run = ? order by number"
"""The unread letters of a run as they were written."""

RUNS_WITH_LETTERS: Final = """
    select waiting.run, letters.run
    from (select run, min(number) as first from letters where namespace = ? group by run order by first limit ?) waiting
    join letters on letters.number = waiting.first order by waiting.first"""
"""Runs that have mail, the longest unread first; as the index has it, and as the letter itself."""

PUT_BLOB: Final = "insert or replace into blobs (namespace, run, hash, data, seal) values (?, ?, ?, ?, ?)"
"""A value too large for the log."""

BLOB: Final = "select data, seal from blobs where namespace = ? and run = ? and hash = ?"
"""One blob."""

PUT_SNAPSHOT: Final = "insert or replace into snapshots (namespace, run, data, seal) values (?, ?, ?, ?)"
"""The newest one counts."""

SNAPSHOT: Final = "select data, seal from snapshots where namespace = ? and run = ?"
"""The fold of a run up to some fact."""

LAST_LINE: Final = "select max(n) from streams where namespace = ? and run = ?"
"""Where a side stream ends."""

ADD_LINE: Final = "insert into streams (namespace, run, n, data, seal) values (?, ?, ?, ?, ?)"
"""Published."""

STREAM: Final = "select n, data, seal from streams where namespace = ? and run = ? and n > ? order by n limit ?"
"""A side stream from a number on; -1: all of it."""

STREAM_BACKWARDS: Final = """
    select n, data, seal from streams where namespace = ? and run = ? and n < ? order by n desc limit ?"""
"""A side stream from its end, or from a number, backwards."""

PUT_WORKER: Final = """
    insert or replace into workers (namespace, worker, lock, tools, queues) values (?, ?, ?, ?, ?)"""
"""Who claims, the lock that it holds for life, and what it can take."""

ABILITIES: Final = "select worker, tools, queues from workers where namespace = ?"
"""What each can take."""

LOCK_OF_WORKER: Final = "select lock from workers where namespace = ? and worker = ?"
"""The lock that a worker holds for life."""

WORKERS: Final = "select worker, lock from workers where namespace = ? and lock <> ?"
"""The workers of other processes."""

REMOVE_WORKER: Final = "delete from workers where namespace = ? and worker = ? and lock = ?"
"""Its process has ended."""

REMOVE_RUN: Final = (
    """insert into removed_changes (namespace, change)
    select namespace, change from runs where namespace = ? and run = ?
    on conflict (namespace) do update set change = max(change, excluded.change)""",
    """with recursive rows (change, before) as (
        select change, before from feed
        where namespace = ?1 and change = (select change from runs where namespace = ?1 and run = ?2)
        union all select feed.change, feed.before from rows join feed on namespace = ?1 and feed.change = rows.before)
    delete from feed where namespace = ?1 and change in (select change from rows)""",
    "delete from facts where namespace = ? and run = ?",
    "delete from commands where namespace = ? and run = ?",
    "delete from timers where namespace = ? and run = ?",
    "delete from letters where namespace = ? and run = ?",
    "delete from blobs where namespace = ? and run = ?",
    "delete from snapshots where namespace = ? and run = ?",
    "delete from streams where namespace = ? and run = ?",
    "delete from dead where namespace = ? and run = ?",
    "delete from labels where namespace = ? and run = ?",
    "delete from runs where namespace = ? and run = ?",
)
"""Everything that belongs to a run."""

LIFT_FLOOR: Final = """
    insert into generations (namespace, floor) values (?, ?)
    on conflict do update set floor = floor + excluded.floor"""
"""Commands to come begin above those of a run that is removed, whose ids may come again."""

FORGET: Final = (
    """insert into removed_changes (namespace, change)
    select namespace, max(change) from (
        select namespace, change from runs where namespace = ?1
        union all select namespace, change from feed where namespace = ?1)
    group by namespace
    on conflict (namespace) do update set change = max(change, excluded.change)""",
    """update feed set until = coalesce((
        select max(number) from facts where facts.namespace = feed.namespace and facts.run = feed.run), 0)
    where namespace = ? and until is null""",
    "delete from commands where namespace = ?",
    "delete from timers where namespace = ?",
    "delete from runs where namespace = ?",
    "delete from snapshots where namespace = ?",
    "delete from dead where namespace = ?",
    "delete from labels where namespace = ?",
)
"""Everything that can be made again from the logs."""

CLEAR_DEAD: Final = "delete from dead where namespace = ? and run = ?"
"""The dead letters of a run."""

ADD_DEAD: Final = "insert into dead (namespace, run, n, fingerprint, at, data, seal) values (?, ?, ?, ?, ?, ?, ?)"
"""A dead letter in its place."""

DEAD: Final = """
    select run, n, fingerprint, at, data, seal from dead where namespace = ? order by at desc, run, n limit ?"""
"""Dead letters, those of the runs that ended last first."""

DEAD_ALIKE: Final = """
    select run, n, fingerprint, at, data, seal from dead
    where namespace = ? and fingerprint = ? order by at desc, run, n limit ?"""
"""Those of one reason."""

_DOCUMENT: Final = "select id, version, due, data, seal from documents"

DOCUMENT: Final = f"{_DOCUMENT} where namespace = ? and kind = ? and id = ?"
"""One document."""

DOCUMENTS: Final = f"{_DOCUMENT} where namespace = ? and kind = ? and id > ? order by id limit ?"
"""The documents of a kind, part by part."""

DUE_DOCUMENTS: Final = f"""
    {_DOCUMENT} indexed by documents_by_due where namespace = ? and kind = ? and due is not null and due <= ?
    order by due limit ?"""
"""The documents of a kind whose moment has come."""

NEXT_DUE_DOCUMENT: Final = """
    select due from documents indexed by documents_by_due
    where namespace = ? and kind = ? and due is not null and due > ? order by due limit 1"""
"""The next moment of a document of this kind."""

PUT_DOCUMENT: Final = """
    insert into documents (namespace, kind, id, version, due, data, seal) values (?, ?, ?, ?, ?, ?, ?)
    on conflict (namespace, kind, id) do update
    set version = excluded.version, due = excluded.due, data = excluded.data, seal = excluded.seal"""
"""A document, in the place of the one that has its id."""

DELETE_DOCUMENT: Final = "delete from documents where namespace = ? and kind = ? and id = ?"
"""A document that is not needed any more."""
