"""Every statement by its name. All names are qualified, and each statement has one plan whatever the statistics say."""

from typing import Final

BEGIN: Final = "begin"
COMMIT: Final = "commit"

LOCK_RUNS: Final = """
    select r.run, r.rid, r.status, r.summary from refold.runs r
    where r.ns = %s and r.run = any(%s) order by r.rid for no key update"""
"""Locks runs in the order of their numbers; another turn waits here."""

OPENING: Final = """
    select (extract(epoch from clock_timestamp()) * 1000000)::bigint, (select floor
    from refold.namespaces where ns = %s)"""
"""The server's time, read behind the locks, and where generations begin."""

HEADS: Final = """
    select r.run, (select f.number from refold.facts f where f.rid = r.rid order by f.number desc limit 1),
        (select min(t.due) from refold.timers t where t.rid = r.rid)
    from refold.runs r where r.ns = %s and r.run = any(%s)"""
"""Where the logs of the locked runs end, and when a timer of theirs is due: a statement behind the locks sees what they
waited for."""

LETTERS: Final = "select run, key, data from refold.letters where ns = %s and run = any(%s) order by number"
"""The unread letters of runs as they were written."""

HELD: Final = """
    select c.rid, c.id, c.generation from refold.commands c
    join unnest(%s::bigint[], %s::text[]) u(rid, id) using (rid, id)
    where c.state = 'h' and c.worker is not null"""
"""Under which generations commands are held."""

HELD_BY_RUN: Final = """
    select r.run, c.id, c.generation from refold.runs r
    join unnest(%s::text[], %s::text[]) u(run, id) using (run) join refold.commands c on c.rid = r.rid and c.id = u.id
    where r.ns = %s and c.state = 'h' and c.worker is not null"""
"""The same for runs whose numbers are not known yet."""

_CLOSE_TYPES: Final = ["%s"] * 45
_CLOSE_TYPES[0], _CLOSE_TYPES[30] = "%s::int", "%s::int[]"
CLOSE: Final = f"select refold.close_turn_v2({', '.join(_CLOSE_TYPES)})"
"""What a turn writes; see the schema."""

CLAIM: Final = """
    select o_run, o_rid, o_head, o_generation, o_until, o_plan, o_losses, o_deadline, o_data, o_cursors, o_lefts,
        o_more, o_again
    from refold.claim_v2(%s::int, %s, %s, %s, %s, %s, %s, %s, %s::int, %s, %s::int[], %s::int[])"""

LANE: Final = "select refold.lane_v2(%s::int, %s, %s, %s, %s, %s, %s)"

RESERVE: Final = "select nextval('refold.rids')"
"""The first of a hundred numbers for runs."""

REVIVE: Final = """
    update refold.runs r set status = u.s, created_at = u.a, workflow = u.w, name = u.m, key = u.e, summary = u.y
    from unnest(%s::bigint[], %s::text[], %s::bigint[], %s::text[], %s::text[], %s::text[], %s::bytea[])
    u(rid, s, a, w, m, e, y)
    where r.rid = u.rid"""
"""The rows of runs of which only the logs were there."""

ADD_LABELS: Final = """
    insert into refold.labels (rid, label, ns, created_at, run)
    select u.rid, u.label, %s, u.at, u.run
    from unnest(%s::bigint[], %s::text[], %s::bigint[], %s::text[]) u(rid, label, at, run)
    on conflict do nothing"""

HOLD: Final = """
    update refold.commands c set state = 'x', worker = null, until = 0, deadline = null
    from unnest(%s::bigint[], %s::text[]) u(rid, id) where c.rid = u.rid and c.id = u.id"""
"""No worker may claim them."""

PAUSE: Final = "delete from refold.lines where rid = any(%s)"
"""Paused runs are in no lane."""

RESUME: Final = """
    select refold.stand_v2(array_agg(lane), array_agg(rid), array_agg(place)) from (
        select lane, rid, min(place) as place
        from refold.commands where rid = any(%s) and state = 'w' group by lane, rid) w
    having count(*) > 0"""
"""Runs that continue are behind the others in each of their lanes."""

SET_TIMERS: Final = """
    insert into refold.timers (rid, key, ns, due) select u.rid, u.key, %s, u.due
    from unnest(%s::bigint[], %s::text[], %s::bigint[]) u(rid, key, due)
    on conflict (rid, key) do update set due = excluded.due"""

CLEAR_TIMERS: Final = """
    delete from refold.timers t using unnest(%s::bigint[], %s::text[]) u(rid, key)
    where t.rid = u.rid and t.key = u.key"""

ADD_LETTERS: Final = """
    insert into refold.letters (ns, run, key, data)
    select %s, u.run, u.key, u.data
    from unnest(%s::text[], %s::text[], %s::bytea[]) with ordinality u(run, key, data, n) order by n
    on conflict (ns, run, key) do nothing"""
"""A letter whose key is unread there is left out, and the unread one keeps its place."""

REMOVE_LETTERS: Final = """
    delete from refold.letters l using unnest(%s::text[], %s::text[]) u(run, key)
    where l.ns = %s and l.run = u.run and l.key = u.key"""

PUT_BLOBS: Final = """
    insert into refold.blobs (rid, hash, data) select u.rid, u.hash, u.data
    from unnest(%s::bigint[], %s::text[], %s::bytea[]) u(rid, hash, data)
    on conflict (rid, hash) do update set data = excluded.data"""

ADD_LINES: Final = """
    insert into refold.streams (rid, n, data)
    select u.rid, coalesce((select max(s.n) from refold.streams s where s.rid = u.rid), 0) + u.n, u.data
    from unnest(%s::bigint[], %s::bigint[], %s::bytea[]) u(rid, n, data)"""

CLEAR_DEAD: Final = "delete from refold.dead where rid = any(%s)"
ADD_DEAD: Final = """
    insert into refold.dead (rid, n, ns, run, fingerprint, at, data) select u.rid, u.n, %s, u.run, u.f, u.at, u.data
    from unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::bigint[], %s::bytea[])
        u(rid, n, run, f, at, data)"""

PUT_PLANS: Final = """
    insert into refold.plans (ns, hash, data) select %s, u.hash, u.data
    from unnest(%s::text[], %s::bytea[]) u(hash, data)
    on conflict do nothing"""
"""A plan is named by its hash, so the first one is as good as any other."""

FACTS: Final = """
    select f.number, f.at, f.data from refold.facts f
    where f.rid = (select rid from refold.runs
    where ns = %s and run = %s) and f.number > %s order by f.number limit %s"""
SOME_FACTS: Final = """
    select f.number, f.at, f.data from refold.facts f
    where f.rid = (select rid from refold.runs where ns = %s and run = %s) and f.number = any(%s) order by f.number"""
TURN_OF: Final = """
    select f.turn from refold.facts f where f.rid = (select rid
    from refold.runs where ns = %s and run = %s) and f.number = %s"""
BLOB: Final = """
    select data from refold.blobs where rid = (select rid from refold.runs where ns = %s and run = %s) and hash = %s"""
SNAPSHOT: Final = (
    "select data from refold.snapshots where rid = (select rid from refold.runs where ns = %s and run = %s)"
)
PUT_SNAPSHOT: Final = """
    insert into refold.snapshots (rid, data) select rid, %s from refold.runs where ns = %s and run = %s
    on conflict (rid) do update set data = excluded.data"""
DUE_TIMERS: Final = """
    select t.key from refold.timers t where t.rid = (select rid
    from refold.runs where ns = %s and run = %s) and t.due <= %s
    order by t.due, t.key"""
PLAN: Final = "select data from refold.plans where ns = %s and hash = %s"
PLANS: Final = "select hash from refold.plans where ns = %s and left(hash, %s::int) = %s order by hash limit %s"

_LEASE: Final = """
    r.run, c.worker, c.generation,
    greatest(c.until, case when w.beat_at >= c.claimed_at then w.until else 0 end), c.claimed_at,
    c.plan, c.losses, c.deadline,
    greatest(c.beat_at, case when w.beat_at >= c.claimed_at then w.beat_at else 0 end), c.data"""
_LEASED: Final = """
    from refold.commands c join refold.runs r on r.rid = c.rid
    left join refold.workers w on w.ns = c.ns and w.worker = c.worker"""

LEASE: Final = f"select {_LEASE} {_LEASED} where r.ns = %s and r.run = %s and c.id = %s and c.state = 'h'"
CLAIMED: Final = """
    select c.id from refold.commands c
    where c.rid = (select rid from refold.runs where ns = %s and run = %s) and c.state = 'h'"""
LEASES_OF_WORKER: Final = (
    f"select {_LEASE} {_LEASED} where c.ns = %s and c.worker = %s and c.state = 'h' order by c.rid, c.place"
)
LEASES: Final = f"""
    select r.run, c.id, coalesce(c.worker, ''),
        greatest(c.until, case when w.beat_at >= c.claimed_at then w.until else 0 end),
        c.worker is not null and greatest(c.until, coalesce(w.seen_until, 0)) > %s, c.claimed_at {_LEASED}
    where c.ns = %s and c.state = 'h' and (%s::text is null or r.run = %s) order by r.run, c.id"""

BEAT: Final = """
    update refold.workers
    set beat_at = %s, until = %s, seen_until = %s, suspect_at = null where ns = %s and worker = %s"""
MOVE_DEADLINES: Final = """
    update refold.commands c set deadline = u.deadline
    from unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[]) u(run, id, generation, deadline)
    join refold.runs r on r.ns = %s and r.run = u.run
    where c.rid = r.rid and c.id = u.id and c.generation = u.generation and c.state = 'h' and c.worker = %s
        and c.deadline is distinct from u.deadline"""
"""A timeout counts from the start of the body, which may be long after the claim."""

ENROL: Final = """
    insert into refold.workers (ns, worker, beat_at, until, seen_until, tools, queues, lock)
    values (%s, %s, 0, 0, %s, %s, %s, %s::int)
    on conflict (ns, worker) do update set tools = excluded.tools, queues = excluded.queues,
        seen_until = case when excluded.lock is null then excluded.seen_until
            else greatest(workers.seen_until, excluded.seen_until) end, lock = excluded.lock,
        suspect_at = null"""
WORKERS: Final = "select worker, tools, queues from refold.workers where ns = %s and seen_until > %s order by worker"
LEASES_BY_WORKER: Final = """
    select c.worker, count(*), max(greatest(c.beat_at, case when w.beat_at >= c.claimed_at then w.beat_at else 0 end))
    from refold.commands c left join refold.workers w on w.ns = c.ns and w.worker = c.worker
    where c.ns = %s and c.state = 'h' and c.worker is not null group by c.worker"""
FORGET_WORKERS: Final = """
    delete from refold.workers w where w.ns = %s and w.seen_until <= %s
        and not exists (select 1 from refold.commands c where c.ns = w.ns and c.worker = w.worker and c.state = 'h')
    returning 1"""
LEAVE: Final = """
    delete from refold.workers w where w.ns = %s and w.worker = any(%s)
        and not exists (select 1 from refold.commands c where c.ns = w.ns and c.worker = w.worker and c.state = 'h')"""

RING: Final = "select pg_notify(%s, payload) from unnest(%s::text[]) payload"
"""In a transaction of its own, which need not survive a crash."""
UNLIMITED: Final = "set local statement_timeout = 0"
NOT_FLUSHED: Final = "set local synchronous_commit = off"
EXPIRE: Final = "select * from refold.expire_v1(%s::int, %s, %s::int)"
HAND_BACK: Final = "select refold.hand_back_v1(%s::int, %s, %s, %s, %s, %s, %s::int)"
PUBLISH: Final = "select refold.publish_v1(%s::int, %s, %s, %s, %s)"
BEGIN_SWEEP: Final = "select refold.begin_sweep_v1(%s::int, %s, %s, %s)"

ADD_RATES: Final = """
    insert into refold.limits (ns, name, rate, burst, tokens, at)
    select %s, u.name, u.micros / 1e6, 1, 1, 0 from unnest(%s::text[], %s::bigint[]) u(name, micros)
    on conflict do nothing"""
"""The limits of loops with a rate."""
SET_WEIGHT: Final = "select refold.set_weight_v1(%s::int, %s, %s::int)"
SET_LIMIT: Final = "select refold.set_limit_v1(%s::int, %s, %s::int, %s::float8, %s::float8, %s)"
REMOVE_LIMIT: Final = "delete from refold.limits where ns = %s and name = %s returning 1"
REMOVE_RATES: Final = "delete from refold.limits where ns = %s and starts_with(name, %s)"
SHARES: Final = """
    select coalesce(c.name, w.share), coalesce(w.weight, 1), coalesce(c.waiting, 0), coalesce(c.leased, 0) from (
        select s.name, count(*) filter (where c.state in ('w', 'l')) as waiting,
            count(*) filter (where c.state = 'h') as leased
        from refold.commands c join refold.lanes a on a.lane = c.lane join refold.shares s on s.share = a.share
        where c.ns = %s and c.state <> 'x' and s.name <> '' group by s.name) c
    full join (select share, weight from refold.weights where ns = %s) w on w.share = c.name order by 1"""
LIMITS: Final = """
    select l.name, l.slots, l.rate, l.burst, l.tokens, l.at, count(c.id) filter (where c.state = 'h'),
        count(c.id) filter (where c.state in ('w', 'l'))
    from refold.limits l left join refold.commands c on c.ns = l.ns and c.lim = l.name
    where l.ns = %s group by l.name, l.slots, l.rate, l.burst, l.tokens, l.at order by l.name"""


RUNS_WITH_LETTERS: Final = """
    select run from refold.letters where ns = %s group by run order by min(number) limit %s"""
DUE_RUNS: Final = """
    select r.run from refold.timers t join refold.runs r on r.rid = t.rid
    where t.ns = %s and t.due <= %s and r.status <> 'paused' order by t.due"""
NEXT_DUE: Final = "select min(due) from refold.timers where ns = %s and due > %s"

RUN: Final = """
    select r.summary, (select f.number from refold.facts f where f.rid = r.rid order by f.number desc limit 1)
    from refold.runs r where r.ns = %s and r.run = %s and r.status <> ''"""

_RUN_ROW: Final = """
    r.run, r.created_at, r.summary, (select f.number
    from refold.facts f where f.rid = r.rid order by f.number desc limit 1)"""
_RUNS_BY: Final = {
    "age": "from refold.runs r where r.ns = %s and r.status <> ''",
    "status": "from refold.runs r where r.ns = %s and r.status = %s",
    "workflow": "from refold.runs r where r.ns = %s and r.workflow = %s and r.status <> ''",
    "name": "from refold.runs r where r.ns = %s and r.name = %s and r.name <> '' and r.status <> ''",
    "key": "from refold.runs r where r.ns = %s and r.key = %s and r.key <> '' and r.status <> ''",
    "label": """from refold.labels l join refold.runs r on r.rid = l.rid
    where l.ns = %s and l.label = %s and r.status <> ''""",
}


def runs_by(what: str, bounds: str) -> str:
    """The newest runs first, found by one index, within bounds such as `and {at} < %s`."""
    table = "l" if what == "label" else "r"
    order = f"order by {table}.created_at desc, {table}.run desc"
    return f"select {_RUN_ROW} {_RUNS_BY[what]} {bounds.format(t=table)} {order} limit %s"


def count_runs_by(what: str, bounds: str) -> str:
    table = "l" if what == "label" else "r"
    return f"select count(*) from (select 1 {_RUNS_BY[what]} {bounds.format(t=table)} limit %s) x"


RUNS_CALLED: Final = f"""
    select {_RUN_ROW} from refold.runs r
    where r.ns = %s and r.status <> '' and (%s::text is null or r.status = %s)
        and (left(r.run, length(%s)) = %s or r.name = %s)
    order by r.created_at desc, r.run desc limit %s"""

CHANGED: Final = """
    select r.run, x.tx::text::bigint, x.rid,
        (select f.number from refold.facts f where f.rid = x.rid order by f.number desc limit 1)
    from (
        select f.rid, max(f.tx) as tx from (
            select g.tx, g.rid from refold.facts g join refold.runs n on n.rid = g.rid and n.ns = %s
            where g.tx is not null and (g.tx, g.rid) > (%s::text::xid8, %s)
                and g.tx < pg_snapshot_xmin(pg_current_snapshot())
            order by g.tx, g.rid limit %s) f
        group by f.rid) x
    join refold.runs r on r.rid = x.rid where r.status <> '' order by x.tx, x.rid"""
"""The runs that have changed since a position: turns of transactions that no running one can precede."""

FEED_EPOCH: Final = """
    select (select system_identifier from pg_control_system()), 'refold.facts'::regclass::oid::bigint,
        case when pg_is_in_recovery() then (select timeline_id from pg_control_checkpoint())
        else ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int end"""
"""Which numbers of transactions count: those of a restored dump, and those behind a failover, are others."""

FEED: Final = """
    select f.tx::text::bigint, f.rid, n.run, f.number, e.number, e.tx::text::bigint
    from refold.facts f join refold.runs n on n.rid = f.rid and n.ns = %s
    left join lateral (
        select g.number, g.tx from refold.facts g where g.rid = f.rid and g.number < f.number and g.tx is not null
        order by g.number desc limit 1) e on true
    where f.tx is not null and (f.tx, f.rid, f.number) > (%s::text::xid8, %s, %s)
        and f.tx < pg_snapshot_xmin(pg_current_snapshot())
    order by f.tx, f.rid, f.number limit %s"""
"""The first facts of turns whose transactions no running one can precede, each with the turn before it."""

FOREIGN_TRANSACTIONS: Final = """
    select 1 from refold.facts f where f.tx is not null and f.tx >= pg_snapshot_xmax(pg_current_snapshot()) limit 1"""
"""Facts with transactions that this server has not had yet: those of a dump that was made on another one."""

RENUMBER: Final = """
    update refold.facts set tx = pg_current_xact_id()
    where tx is not null and tx >= pg_snapshot_xmax(pg_current_snapshot())"""

FEED_RUN: Final = "select run from refold.runs where ns = %s and rid = %s"
FEED_TURN: Final = """
    select f.number, f.at, f.data from refold.facts f where f.rid = %s and f.number > %s and f.number < coalesce((
        select g.number from refold.facts g where g.rid = %s and g.number > %s and g.tx is not null
        order by g.number limit 1), 9223372036854775807)
    order by f.number"""
"""What is left of a turn behind one of its facts."""

FEED_FACTS: Final = """
    select f.rid, f.number, f.at, f.data
    from unnest(%s::bigint[], %s::bigint[], %s::bigint[]) u(rid, first, last)
    join refold.facts f on f.rid = u.rid and f.number between u.first and u.last
    order by f.rid, f.number"""
FEED_ENDS: Final = """
    select u.rid, u.first, coalesce((
        select g.number - 1 from refold.facts g where g.rid = u.rid and g.number > u.first and g.tx is not null
        order by g.number limit 1), (
        select g.number from refold.facts g where g.rid = u.rid order by g.number desc limit 1))
    from unnest(%s::bigint[], %s::bigint[]) u(rid, first)"""
"""The last facts of turns."""

TURN_BEFORE: Final = """
    select g.number, g.tx::text::bigint from refold.facts g
    where g.rid = %s and g.number < %s and g.tx is not null order by g.number desc limit 1"""

LAST_CHANGED: Final = """
    select g.tx::text::bigint, g.rid from refold.facts g join refold.runs n on n.rid = g.rid and n.ns = %s
    where g.tx is not null and g.tx < pg_snapshot_xmin(pg_current_snapshot()) order by g.tx desc, g.rid desc limit 1"""

STREAM: Final = """
    select n, data from refold.streams where rid = (select rid from refold.runs where ns = %s and run = %s) and n > %s
    order by n limit %s"""
STREAM_BACKWARDS: Final = """
    select n, data from refold.streams where rid = (select rid from refold.runs where ns = %s and run = %s) and n < %s
    order by n desc limit %s"""

QUEUES: Final = """
    select s.queue, count(*) filter (where c.state in ('w', 'l')), count(*) filter (where c.state = 'h'),
        min(c.issued_at) filter (where c.state in ('w', 'l'))
    from refold.commands c join refold.lanes a on a.lane = c.lane join refold.shares s on s.share = a.share
    where c.ns = %s and c.state <> 'x' group by s.queue order by s.queue"""

DEAD: Final = """
    select data from refold.dead where ns = %s and (%s::text is null or fingerprint = %s)
    order by at desc, run, n limit %s"""

SIZES: Final = """
    select (select count(*) from refold.runs where ns = %(ns)s and status <> ''),
        (select count(*) from refold.labels where ns = %(ns)s),
        (select count(*) from refold.facts f join refold.runs r on r.rid = f.rid and r.ns = %(ns)s),
        (select count(*) from refold.commands where ns = %(ns)s),
        (select count(*) from refold.timers where ns = %(ns)s),
        (select count(*) from refold.letters where ns = %(ns)s),
        (select count(*) from refold.blobs f join refold.runs r on r.rid = f.rid and r.ns = %(ns)s),
        (select count(*) from refold.snapshots f join refold.runs r on r.rid = f.rid and r.ns = %(ns)s),
        (select count(*) from refold.streams f join refold.runs r on r.rid = f.rid and r.ns = %(ns)s),
        (select count(*) from refold.dead where ns = %(ns)s),
        (select count(*) from refold.plans where ns = %(ns)s),
        (select count(*) from refold.workers where ns = %(ns)s),
        (select count(*) from refold.documents where ns = %(ns)s)"""
TABLES: Final = (
    *("runs", "labels", "facts", "commands", "timers", "letters", "blobs", "snapshots", "streams", "dead", "plans"),
    *("workers", "documents"),
)

REMOVABLE: Final = (
    "select r.rid, r.summary from refold.runs r where r.ns = %s and r.run = %s and r.status <> '' for update"
)
REMOVE_RUN: Final = tuple(
    f"delete from refold.{table} where rid = %s"
    for table in ("facts", "commands", "lines", "timers", "blobs", "snapshots", "streams", "dead", "labels", "runs")
)
REMOVE_MAIL: Final = "delete from refold.letters where ns = %s and run = %s"
LIFT_FLOOR: Final = "update refold.namespaces set floor = floor + %s where ns = %s"
RAISE_FLOOR: Final = """
    update refold.namespaces set floor = %s + greatest(floor, coalesce((
        select max(generation) from refold.commands where ns = %s), 0)) where ns = %s"""
FORGET: Final = (
    "select rid from refold.runs where ns = %s order by rid for update",
    "delete from refold.lines l using refold.runs r where r.rid = l.rid and r.ns = %s",
    "delete from refold.commands where ns = %s",
    "delete from refold.timers where ns = %s",
    "delete from refold.snapshots s using refold.runs r where r.rid = s.rid and r.ns = %s",
    "delete from refold.dead where ns = %s",
    "delete from refold.labels where ns = %s",
    "update refold.runs set status = '', workflow = '', name = '', key = '', summary = '' where ns = %s",
)
LOGS: Final = "select run from refold.runs where ns = %s order by run"

LOCK_DOCUMENT: Final = "select pg_advisory_xact_lock(78, hashtext(%s))"
"""Also one that does not exist yet."""
DOCUMENT: Final = "select kind, id, version, data, due from refold.documents where ns = %s and kind = %s and id = %s"
DOCUMENTS: Final = """
    select kind, id, version, data, due from refold.documents
    where ns = %s and kind = %s and id > %s order by id limit %s"""
DUE_DOCUMENTS: Final = """
    select kind, id, version, data, due from refold.documents
    where ns = %s and kind = %s and due <= %s order by due, id limit %s"""
NEXT_DUE_DOCUMENT: Final = "select min(due) from refold.documents where ns = %s and kind = %s and due > %s"
PUT_DOCUMENT: Final = """
    insert into refold.documents (ns, kind, id, version, data, due) values (%s, %s, %s, %s, %s, %s)
    on conflict (ns, kind, id) do update set version = excluded.version, data = excluded.data, due = excluded.due"""
DELETE_DOCUMENT: Final = "delete from refold.documents where ns = %s and kind = %s and id = %s"
