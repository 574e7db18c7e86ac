-- The first schema of PostgreSQL. `facts`, `plans`, `blobs`, `letters` and `streams` are the truth; the rest follows from
-- it and can be rebuilt; `snapshots` may always be deleted. Moments are microseconds since 1970, by the server's clock.
--
-- Locks are taken in this order and in no other: rows of runs by rid, commands of those runs, shares, lines of those runs,
-- and then claims. A claim never waits for a lock and is the last thing in its transaction.

create table refold.namespaces (
    ns int generated always as identity primary key,
    name text collate "C" not null unique,
    floor bigint not null default 0 -- where generations begin; a rebuild raises it above every one it may have forgotten
);
create sequence refold.rids increment by 100; -- a process reserves a block of 100
create sequence refold.places;
create sequence refold.turns;

-- One row for each run, written when the run starts and when something changes that lists show. A plain turn locks the
-- row and does not rewrite it. The number of the last fact is not here: it is one step in the key of `facts`.
create table refold.runs (
    rid bigint primary key, -- grows with the start: a short key for all tables below
    ns int not null,
    run text collate "C" not null,
    status text collate "C" not null, -- empty: only the log is there, and a rebuild writes the rest
    created_at bigint not null,
    workflow text collate "C" not null,
    name text collate "C" not null,
    key text collate "C" not null,
    summary bytea not null
) with (fillfactor = 70);
create unique index runs_by_run on refold.runs (ns, run);
create index runs_by_age on refold.runs (ns, created_at, run);
create index runs_by_status on refold.runs (ns, status, created_at, run);
create index runs_by_workflow on refold.runs (ns, workflow, created_at, run);
create index runs_by_name on refold.runs (ns, name, created_at, run) where name <> '';
create index runs_by_key on refold.runs (ns, key, created_at, run) where key <> '';

create table refold.labels (
    rid bigint not null,
    label text collate "C" not null, -- name=value
    ns int not null,
    created_at bigint not null, -- the start of the run
    run text collate "C" not null,
    primary key (rid, label)
);
create index runs_by_label on refold.labels (ns, label, created_at, run);

create table refold.facts (
    rid bigint not null,
    number bigint not null, -- 1, 2, 3 ... without a gap
    at bigint not null,
    kind text collate "C" not null, -- for people; the data says it too
    data bytea not null,
    turn text collate "C", -- on the first fact that a turn wrote for the run: settles what an ambiguous commit did
    tx xid8, -- there too: readers of changes find it by this
    primary key (rid, number) -- the fence: a turn whose first number is taken is refused
) partition by range (rid);
create table refold.facts_0 partition of refold.facts for values from (minvalue) to (maxvalue);
create index facts_feed on refold.facts (tx, rid) where tx is not null;

create table refold.plans (
    ns int not null,
    hash text collate "C" not null, -- of the data, which never changes
    data bytea not null,
    primary key (ns, hash)
);

-- Who waits: shares of a queue and priority, lanes of a share, lines (runs) of a lane, commands of a line.
create table refold.shares (
    share int generated always as identity primary key,
    ns int not null,
    queue text collate "C" not null,
    priority bigint not null,
    name text collate "C" not null, -- the fairness key; '' for all that have none
    weight int not null default 1, -- commands in a round
    waiting boolean not null default false, -- a run is in one of its lanes, or was lately; of '' never set back
    unique (ns, queue, priority, name)
) with (fillfactor = 50);
create index shares_open on refold.shares (ns, queue, priority desc, share) where waiting;

create table refold.lanes (
    lane int generated always as identity primary key,
    share int not null,
    kind text collate "C" not null, -- of the executor that the body needs a place in, or ''
    needs text collate "C" not null, -- what not every worker has: the body of a Python workflow; '' otherwise
    lim text collate "C" not null, -- the limit key, or ''
    closed_until bigint not null default 0, -- its limit is used up until then, or until a slot is free
    floor bigint not null default 0, -- no line had a turn before this one when the sweep looked last
    unique (share, kind, needs, lim)
) with (fillfactor = 50);

-- `turn` is in no unique index, so that moving a line and adding to it (key share) do not wait for each other. The key
-- begins with rid, so that a search by lane has one index to take.
create table refold.lines (
    lane int not null,
    rid bigint not null,
    turn bigint not null, -- the run served longest ago has the smallest
    first bigint not null, -- no command of the line waits before this place
    primary key (rid, lane)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index lines_by_turn on refold.lines (lane, turn);

-- A command's life:
--
--   issued -> w                  a worker may claim it
--   issued -> l                  not before its moment; the first claim after that makes it w
--   w -> h                       claimed: the generation grows
--   h -> w                       handed back, or lost: the losses grow
--   any -> x                     no worker may claim it until it is issued again
--   any -> w or l                issued again, in a new place; generation and losses are kept
--   any -> no row                settled or withdrawn, permanently
create table refold.commands (
    rid bigint not null,
    id text collate "C" not null,
    ns int not null,
    lane int not null,
    place bigint not null, -- the order of issue
    tool text collate "C" not null,
    state "char" not null,
    not_before bigint not null,
    issued_at bigint not null,
    generation bigint not null, -- grows with every claim, so late reports are refused
    losses int not null, -- leases that ran out
    hand_backs int not null, -- since the last one that was a loss
    worker text collate "C", -- null in state h: its holder has given it up, and that is not counted as a loss yet
    until bigint not null,
    deadline bigint,
    timeout bigint,
    beat_at bigint not null,
    claimed_at bigint not null,
    lim text collate "C" not null,
    prefer text collate "C" not null, -- the worker that is to have it first, or ''
    prefer_until bigint not null,
    plan text collate "C" not null,
    data bytea not null,
    primary key (rid, id)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index commands_waiting on refold.commands (lane, rid, place) where state = 'w';
create index commands_later on refold.commands (ns, not_before) where state = 'l';
create index commands_held on refold.commands (ns, worker) where state = 'h';

-- One row is one heartbeat: a lease lasts until the later of its own `until` and that of its worker, if the worker has
-- beaten since the claim.
create table refold.workers (
    ns int not null,
    worker text collate "C" not null,
    beat_at bigint not null,
    until bigint not null, -- of the last beat
    seen_until bigint not null, -- readers take it for alive until then
    lock int, -- its process holds this life lock while it lives; null: it has none
    suspect_at bigint, -- when the lock was found free; a beat clears it
    tools text[], -- null: unknown
    queues text[], -- null: all
    primary key (ns, worker)
) with (fillfactor = 50);

create table refold.timers (
    rid bigint not null,
    key text collate "C" not null,
    ns int not null,
    due bigint not null,
    primary key (rid, key)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index timers_by_due on refold.timers (ns, due);

create table refold.letters ( -- the receiver may not exist yet, so it is here by its name
    number bigint generated always as identity primary key, -- the order of writing
    ns int not null,
    run text collate "C" not null,
    key text collate "C" not null,
    data bytea not null,
    unique (ns, run, key)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

create table refold.blobs (rid bigint not null, hash text collate "C" not null, data bytea not null, primary key (rid, hash));
create table refold.snapshots (rid bigint primary key, data bytea not null);
create table refold.streams (rid bigint not null, n bigint not null, data bytea not null, primary key (rid, n));
create table refold.dead (
    rid bigint not null,
    n int not null,
    ns int not null,
    run text collate "C" not null,
    fingerprint text collate "C" not null,
    at bigint not null,
    data bytea not null,
    primary key (rid, n)
);
create index dead_by_age on refold.dead (ns, at desc, run, n);
create index dead_by_fingerprint on refold.dead (ns, fingerprint, at desc, run, n);

-- Small things that belong to no run: schedules, calendars, entries of catalogues.
create table refold.documents (
    ns int not null,
    kind text collate "C" not null,
    id text collate "C" not null,
    version bigint not null, -- grows with every put, so that a writer that has not seen the last one is refused
    due bigint, -- when somebody has to look at it; null: never
    data bytea not null,
    primary key (ns, kind, id)
);
create index documents_by_due on refold.documents (ns, kind, due) where due is not null;

-- The lane of a command; asked once by each process and kept.
create function refold.lane_v1(
    p_ns int, p_queue text, p_priority bigint, p_share text, p_kind text, p_needs text, p_lim text)
returns int language plpgsql as $$
declare s int; l int;
begin
    insert into refold.shares (ns, queue, priority, name) values (p_ns, p_queue, p_priority, p_share) on conflict do nothing;
    select share into s from refold.shares where ns = p_ns and queue = p_queue and priority = p_priority and name = p_share;
    insert into refold.lanes (share, kind, needs, lim) values (s, p_kind, p_needs, p_lim) on conflict do nothing;
    select lane into l from refold.lanes where share = s and kind = p_kind and needs = p_needs and lim = p_lim;
    return l;
end $$;

-- A run has something waiting in these lanes. The caller holds the run, or the command that came back. The two locks
-- keep a claim from taking the line, or the share, for empty while this is not committed yet.
create function refold.stand_v1(p_lanes int[], p_rids bigint[], p_places bigint[]) returns void language plpgsql as $$
begin
    perform pg_advisory_xact_lock_shared(77, share)
        from (select distinct share from refold.lanes where lane = any(p_lanes) order by share) s;
    update refold.shares s set waiting = true
        from (select o.share from refold.shares o
              where o.share in (select share from refold.lanes where lane = any(p_lanes)) and not o.waiting
              order by o.share for no key update) f
        where s.share = f.share;
    insert into refold.lines (lane, rid, turn, first)
        select lane, rid, nextval('refold.turns'), place
        from (select lane, rid, min(place) as place from unnest(p_lanes, p_rids, p_places) u(lane, rid, place)
              group by lane, rid order by min(place)) g
        on conflict (rid, lane) do update set first = excluded.first where lines.first > excluded.first;
    perform 1 from refold.lines l join unnest(p_lanes, p_rids) u(lane, rid) using (lane, rid) for key share of l;
end $$;

-- What may start by now joins its line, in the place that it was issued in.
create function refold.release_v1(p_ns int, p_now bigint) returns void language plpgsql as $$
declare ls int[]; rs bigint[]; ps bigint[];
begin
    if not exists (select 1 from refold.commands where ns = p_ns and state = 'l' and not_before <= p_now) then return; end if;
    with due as (
        select c.rid, c.id from refold.commands c join refold.runs r on r.rid = c.rid
        where c.ns = p_ns and c.state = 'l' and c.not_before <= p_now
        order by c.not_before limit 10000 for share of r skip locked for update of c skip locked),
    freed as (
        update refold.commands c set state = 'w' from due where c.rid = due.rid and c.id = due.id
        returning c.lane, c.rid, c.place)
    select array_agg(f.lane), array_agg(f.rid), array_agg(f.place) into ls, rs, ps
        from freed f join refold.runs r on r.rid = f.rid where r.status <> 'paused';
    if ls is not null then perform refold.stand_v1(ls, rs, ps); end if;
end $$;

-- Whether something waits in one of these queues.
create function refold.waits_v1(p_ns int, p_queues text[]) returns boolean language sql stable as $$
    select exists (
        select 1 from refold.shares s join refold.lanes a using (share) join refold.lines l using (lane)
        where s.ns = p_ns and s.waiting and (p_queues is null or s.queue = any(p_queues)) limit 1) $$;

-- Lease what waits: the highest priority, then the worker's order of queues; there shares go round by their weights, in a
-- share runs take turns, in a run the order of issue. It never waits for a lock, so it may be at the end of any
-- transaction. The claimer keeps its own place in the round (cursor, what is left of the share's weight): fair for each
-- claimer, so fair for all, and nothing is written for it.
create function refold.claim_v1(
    p_ns int, p_worker text, p_queues text[], p_tools text[], p_needs text[], p_runs text[], p_kinds text[], p_places bigint[],
    p_lease bigint, p_limit int, p_now bigint, p_cursor int, p_left int)
returns table (
    o_run text, o_rid bigint, o_head bigint, o_generation bigint, o_until bigint, o_plan text, o_losses int,
    o_deadline bigint, o_data bytea, o_cursor int, o_left int, o_more boolean)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    g record; s record; h record; done int[]; ls int[]; all_ls int[]; skip_lane int[]; skip_rid bigint[]; free bigint[]; locked boolean; need int; most int; base int;
    took int; k int; per int; cur int; rest int; mine bigint[]; rids bigint[]; ids text[];
    f_lane int[]; f_rid bigint[]; f_first bigint[]; n_place bigint[]; c_rid bigint[]; c_id text[]; c_lane int[];
begin
    rids := '{}'; ids := '{}'; free := p_places; cur := p_cursor; rest := p_left;
    if p_limit <= 0 then return; end if;
    if p_runs is not null then
        select coalesce(array_agg(r.rid), '{}') into mine from refold.runs r where r.ns = p_ns and r.run = any(p_runs);
        if mine = '{}' then return; end if;
    end if;
    perform refold.release_v1(p_ns, p_now);
    for g in
        select distinct q.priority, q.queue, case when p_queues is null then 0 else array_position(p_queues, q.queue) end as at
        from refold.shares q where q.ns = p_ns and q.waiting and (p_queues is null or q.queue = any(p_queues))
        order by 1 desc, 3, 2
    loop
        done := '{}';
        while cardinality(rids) < p_limit loop
            -- the share that is being served, or the next one round
            select sh.share, sh.weight, (
                    select count(*) from (
                        select 1 from refold.shares o
                        where o.ns = p_ns and o.queue = g.queue and o.priority = g.priority and o.waiting limit 2) x) as rivals
                into s from (
                    (select * from refold.shares a
                     where a.ns = p_ns and a.queue = g.queue and a.priority = g.priority and a.waiting
                         and a.share >= cur + (rest <= 0)::int and not a.share = any(done)
                     order by a.share limit 1)
                    union all
                    (select * from refold.shares a
                     where a.ns = p_ns and a.queue = g.queue and a.priority = g.priority and a.waiting
                         and a.share < cur + (rest <= 0)::int and not a.share = any(done)
                     order by a.share limit 1)) sh limit 1;
            exit when not found;
            if s.share <> cur or rest <= 0 then cur := s.share; rest := s.weight; end if;
            need := p_limit - cardinality(rids);
            if s.rivals > 1 then need := least(need, rest); end if;
            took := 0;
            for h in -- the lanes without a limit together, the others one by one
                select array_agg(a.lane) as lanes, a.lim from refold.lanes a
                where a.share = s.share and a.closed_until <= p_now and (p_needs is null or a.needs = any(p_needs))
                group by case when a.lim = '' then 0 else a.lane end, a.lim order by a.lim
            loop
                exit when took >= need;
                all_ls := h.lanes; skip_lane := '{}'; skip_rid := '{}'; base := took; most := need;
                while took < most loop
                    locked := true; ls := all_ls;
                    if free <> '{}' then -- lanes of executors without a free place are passed over
                        select coalesce(array_agg(a.lane), '{}') into ls from refold.lanes a where a.lane = any(all_ls)
                            and coalesce(free[array_position(p_kinds, a.kind)], 1) > 0;
                        exit when ls = '{}';
                    end if;
                    if mine is null then
                        select array_agg(x.lane), array_agg(x.rid), array_agg(x.first) into f_lane, f_rid, f_first from (
                            select y.* from (select a.lane, a.floor from refold.lanes a where a.lane = any(ls)) a
                            cross join lateral (
                                select l.lane, l.rid, l.turn, l.first from refold.lines l
                                where l.lane = a.lane and l.turn >= a.floor and (skip_rid = '{}' or not exists (
                                    select 1 from unnest(skip_lane, skip_rid) k(lane, rid)
                                    where k.lane = l.lane and k.rid = l.rid))
                                order by l.turn limit most - took for no key update skip locked) y
                            order by y.turn limit most - took) x;
                        if f_lane is null and took = base and skip_rid = '{}' then
                            locked := false; -- others hold all lines: take what they leave, and touch no line
                            select array_agg(x.lane), array_agg(x.rid), array_agg(x.first) into f_lane, f_rid, f_first from (
                                select y.* from (select a.lane, a.floor from refold.lanes a where a.lane = any(ls)) a
                                cross join lateral (
                                    select l.lane, l.rid, l.turn, l.first from refold.lines l
                                    where l.lane = a.lane and l.turn >= a.floor order by l.turn limit most) y
                                order by y.turn limit most) x;
                        end if;
                    else
                        select array_agg(x.lane), array_agg(x.rid), array_agg(x.first) into f_lane, f_rid, f_first from (
                            select l.lane, l.rid, l.first from refold.lines l
                            where l.lane = any(ls) and l.rid = any(mine) and (skip_rid = '{}' or not exists (
                                select 1 from unnest(skip_lane, skip_rid) k(lane, rid)
                                where k.lane = l.lane and k.rid = l.rid))
                            order by l.turn limit most - took for no key update skip locked) x;
                    end if;
                    exit when f_lane is null;
                    k := cardinality(f_lane); per := (most - took + k - 1) / k;
                    -- picked first, written then: in one statement the planner would guess at the number of rows
                    select array_agg(p.rid order by p.round, p.n), array_agg(p.id order by p.round, p.n),
                            array_agg(p.lane order by p.round, p.n)
                            into c_rid, c_id, c_lane from (
                        select f.n, f.rid, f.lane, c.id, c.round from unnest(f_lane, f_rid, f_first) with ordinality f(lane, rid, first, n)
                        cross join lateral (
                            select z.id, row_number() over (order by z.place) as round from (
                                select c.id, c.place from refold.commands c
                                where c.lane = f.lane and c.rid = f.rid and c.state = 'w' and c.place >= f.first
                                    and (p_tools is null or c.tool = any(p_tools))
                                    and (c.prefer = '' or c.prefer = p_worker or c.prefer_until <= p_now or not exists (
                                        select 1 from refold.workers w
                                        where w.ns = p_ns and w.worker = c.prefer and w.seen_until > p_now))
                                order by c.place limit per for update skip locked) z) c
                        order by c.round, f.n limit most - took) p;
                    if c_rid is not null and free <> '{}' then -- no more of a kind than there are places
                        select array_agg(p.rid order by p.n), array_agg(p.id order by p.n), array_agg(p.lane order by p.n)
                            into c_rid, c_id, c_lane from (
                                select u.*, row_number() over (partition by a.kind order by u.n) as of_kind,
                                    free[array_position(p_kinds, a.kind)] as room
                                from unnest(c_rid, c_id, c_lane) with ordinality u(rid, id, lane, n)
                                join refold.lanes a on a.lane = u.lane) p
                            where p.room is null or p.of_kind <= p.room;
                        select array_agg(free[k.n] - coalesce(t.count, 0) order by k.n) into free
                            from unnest(p_kinds) with ordinality k(kind, n) left join (
                                select a.kind, count(*) from unnest(c_lane) u(lane) join refold.lanes a on a.lane = u.lane
                                group by a.kind) t on t.kind = k.kind;
                    end if;
                    if c_rid is not null then
                        update refold.commands c set state = 'h', generation = c.generation + 1, worker = p_worker,
                            until = p_now + p_lease, deadline = p_now + c.timeout, claimed_at = p_now, beat_at = p_now
                            from unnest(c_rid, c_id) p(rid, id) where c.rid = p.rid and c.id = p.id;
                        took := took + cardinality(c_rid); rids := rids || c_rid; ids := ids || c_id;
                    end if;
                    if locked then -- a run that was served is behind the others now, and fronts move on
                        select array_agg((
                            select c.place from refold.commands c
                            where c.lane = u.lane and c.rid = u.rid and c.state = 'w' and c.place >= u.first
                            order by c.place limit 1) order by u.n)
                            into n_place from unnest(f_lane, f_rid, f_first) with ordinality u(lane, rid, first, n);
                        update refold.lines l
                            set turn = case when r.served is null then l.turn else nextval('refold.turns') end,
                                first = coalesce(r.place, l.first)
                            from (select u.lane, u.rid, u.place, (
                                      select min(t.n) from unnest(c_lane, c_rid) with ordinality t(lane, rid, n)
                                      where t.lane = u.lane and t.rid = u.rid) as served
                                  from unnest(f_lane, f_rid, n_place) u(lane, rid, place) order by 4) r
                            where l.lane = r.lane and l.rid = r.rid and (r.served is not null or r.place > l.first);
                        for i in 1 .. k loop -- an empty line goes, unless its run is about to issue more and has it locked
                            if n_place[i] is null then
                                perform 1 from refold.lines l where l.lane = f_lane[i] and l.rid = f_rid[i] for update skip locked;
                                if found then
                                    delete from refold.lines l where l.lane = f_lane[i] and l.rid = f_rid[i]
                                        and not exists (
                                            select 1 from refold.commands c
                                            where c.lane = f_lane[i] and c.rid = f_rid[i] and c.state = 'w' and c.place >= l.first);
                                end if;
                            end if;
                        end loop;
                    end if;
                    select skip_lane || coalesce(array_agg(u.lane), '{}'), skip_rid || coalesce(array_agg(u.rid), '{}')
                        into skip_lane, skip_rid from unnest(f_lane, f_rid) u(lane, rid)
                        where not exists (select 1 from unnest(c_lane, c_rid) t(lane, rid) where t.lane = u.lane and t.rid = u.rid);
                    exit when not locked;
                end loop;
            end loop;
            rest := rest - took;
            if took < need then done := done || s.share; rest := 0; end if;
        end loop;
        exit when cardinality(rids) >= p_limit;
    end loop;
    return query
        select r.run, u.rid, (select f.number from refold.facts f where f.rid = u.rid order by f.number desc limit 1),
            c.generation, c.until, c.plan, c.losses, c.deadline, c.data, cur, rest, refold.waits_v1(p_ns, p_queues)
        from unnest(rids, ids) with ordinality u(rid, id, n)
        join refold.commands c on c.rid = u.rid and c.id = u.id join refold.runs r on r.rid = u.rid order by u.n;
end $$;

-- Workers whose processes have died: their life lock was free twice, 3 s apart, without a beat between. A free lock alone
-- proves nothing: after a broken connection or a restart of the server it is free while the process lives.
create function refold.bury_v1(p_ns int, p_now bigint) returns void language plpgsql as $$
declare w record;
begin
    if pg_postmaster_start_time() > clock_timestamp() - interval '10 seconds' then return; end if;
    for w in
        select o.worker, o.lock, o.suspect_at from refold.workers o where o.ns = p_ns and o.lock is not null
            and exists (select 1 from refold.commands c where c.ns = p_ns and c.worker = o.worker and c.state = 'h')
    loop
        if not pg_try_advisory_xact_lock(79, w.lock) then
            if w.suspect_at is not null then
                update refold.workers o set suspect_at = null where o.ns = p_ns and o.worker = w.worker;
            end if;
        elsif w.suspect_at is null then
            update refold.workers o set suspect_at = p_now where o.ns = p_ns and o.worker = w.worker;
        elsif w.suspect_at <= p_now - 3000000 then
            update refold.commands c set until = least(c.until, p_now)
                where c.ns = p_ns and c.worker = w.worker and c.state = 'h';
            update refold.workers o set until = 0, seen_until = 0, lock = null, suspect_at = null
                where o.ns = p_ns and o.worker = w.worker;
        end if;
    end loop;
end $$;

-- Held commands whose lease is over. Those that hang, or were lost as often as allowed, are only reported; the others go
-- back to their lines. A run that a turn has locked is left to the next look.
create function refold.expire_v1(p_ns int, p_now bigint, p_losses int)
returns table (o_run text, o_id text, o_generation bigint, o_losses int, o_worker text, o_data bytea, o_back boolean)
language plpgsql as $$
declare e record; ls int[]; rs bigint[]; ps bigint[];
begin
    ls := '{}'; rs := '{}'; ps := '{}';
    perform refold.bury_v1(p_ns, p_now);
    for e in
        select c.rid, c.id, c.lane, c.place, c.generation, c.losses, c.worker, c.data, r.run, r.status,
            c.deadline is not null
                and greatest(c.beat_at, case when w.beat_at >= c.claimed_at then w.beat_at else 0 end) > c.deadline as hangs
        from refold.commands c join refold.runs r on r.rid = c.rid
        left join refold.workers w on w.ns = c.ns and w.worker = c.worker
        where c.ns = p_ns and c.state = 'h' and (
            greatest(c.until, case when w.beat_at >= c.claimed_at and c.worker is not null then w.until else 0 end) <= p_now
            or greatest(c.beat_at, case when w.beat_at >= c.claimed_at then w.beat_at else 0 end) > c.deadline)
        order by c.rid, c.id
        for share of r skip locked for update of c skip locked
    loop
        o_run := e.run; o_id := e.id; o_generation := e.generation; o_losses := e.losses; o_worker := e.worker; o_data := e.data;
        o_back := not e.hangs and e.losses < p_losses;
        if o_back then
            update refold.commands c set state = 'w', worker = null, until = 0, deadline = null, losses = c.losses + 1
                where c.rid = e.rid and c.id = e.id;
            if e.status <> 'paused' then
                ls := ls || e.lane; rs := rs || e.rid; ps := ps || e.place;
            end if;
        end if;
        return next;
    end loop;
    if ls <> '{}' then perform refold.stand_v1(ls, rs, ps); end if;
end $$;

-- A worker gives a command back: it waits again in its old place. Given up for lost, or handed back too often, it stays
-- with no worker until the sweep counts a loss.
create function refold.hand_back_v1(p_ns int, p_run text, p_id text, p_generation bigint, p_now bigint, p_lost boolean, p_most int)
returns boolean language plpgsql as $$
declare r record; c record; w bigint;
begin
    select * into r from refold.runs where ns = p_ns and run = p_run for share;
    if not found then return false; end if;
    select * into c from refold.commands
        where rid = r.rid and id = p_id and state = 'h' and worker is not null and generation = p_generation for update;
    if not found then return false; end if;
    select beat_at into w from refold.workers where ns = p_ns and worker = c.worker and beat_at >= c.claimed_at;
    if p_lost or c.hand_backs + 1 >= p_most then
        update refold.commands set worker = null, until = p_now, deadline = null, hand_backs = 0, beat_at = greatest(c.beat_at, w)
            where rid = r.rid and id = p_id;
        return true;
    end if;
    update refold.commands set state = 'w', worker = null, until = 0, deadline = null, hand_backs = c.hand_backs + 1,
        beat_at = greatest(c.beat_at, w) where rid = r.rid and id = p_id;
    if r.status <> 'paused' then perform refold.stand_v1(array[c.lane], array[c.rid], array[c.place]); end if;
    return true;
end $$;

-- Lines behind those that the side stream of a run has; numbered under a lock of the run.
create function refold.publish_v1(p_ns int, p_run text, p_id text, p_generation bigint, p_lines bytea[])
returns boolean language plpgsql as $$
declare r bigint;
begin
    select rid into r from refold.runs where ns = p_ns and run = p_run for no key update;
    if not found or not exists (
        select 1 from refold.commands
        where rid = r and id = p_id and state = 'h' and worker is not null and generation = p_generation) then
        return false;
    end if;
    insert into refold.streams (rid, n, data)
        select r, coalesce((select max(n) from refold.streams where rid = r), 0) + u.n, u.data
        from unnest(p_lines) with ordinality u(data, n);
    return true;
end $$;

-- Shares that no run waits in any more, and how far the lanes have come.
create function refold.tidy_v1(p_ns int) returns void language plpgsql as $$
declare s int;
begin
    for s in select sh.share from refold.shares sh where sh.ns = p_ns and sh.waiting and sh.name <> ''
        and not exists (select 1 from refold.lanes a join refold.lines l using (lane) where a.share = sh.share) order by 1
    loop
        if pg_try_advisory_xact_lock(77, s) then -- no run is about to join one of its lines
            update refold.shares sh set waiting = false where sh.share = s
                and not exists (select 1 from refold.lanes a join refold.lines l using (lane) where a.share = s);
        end if;
    end loop;
    update refold.lanes a set floor = f.turn
        from (select b.lane, coalesce(
                  (select l.turn from refold.lines l where l.lane = b.lane order by l.turn limit 1),
                  (select last_value from refold.turns)) as turn
              from refold.lanes b join refold.shares sh using (share) where sh.ns = p_ns and sh.waiting) f
        where a.lane = f.lane and (a.floor + 1000 < f.turn or f.turn < a.floor); -- rarely: each change leaves a dead row
end $$;

-- What a turn writes of any number of runs, in one statement. What was remembered is verified, and all is written or
-- nothing (unique_violation: the head has moved; RF001: a
-- lease has; RF002: a run has gone; RF003: generations begin elsewhere). Commands that wait join their
-- lines; those that are leased to the reporting worker (state h) are never seen by a claim. Returns whether others wait:
-- then the next turn issues its commands as waiting and claims, in the same round trip.
create function refold.close_turn_v1(
    p_ns int, p_now bigint, p_queues text[],
    n_rid bigint[], n_run text[], n_status text[], n_at bigint[], n_workflow text[], n_name text[], n_key text[], n_summary bytea[],
    u_rid bigint[], u_status text[], u_workflow text[], u_summary bytea[], k_rid bigint[], -- rows that change; runs that go on
    f_rid bigint[], f_number bigint[], f_at bigint[], f_kind text[], f_data bytea[], f_turn text[],
    v_rid bigint[], v_id text[], v_gen bigint[], -- commands that were reported and do not end
    g_rid bigint[], g_id text[], g_gen bigint[], -- commands that end, by the generation of their holder; null: any holder
    c_rid bigint[], c_id text[], c_lane int[], c_tool text[], c_state text[], c_nb bigint[], c_gen bigint[], c_plan text[],
    c_timeout bigint[], c_prefer text[], c_prefer_until bigint[], c_data bytea[], c_worker text, c_until bigint, c_again boolean, c_floor bigint)
returns boolean language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare k int;
begin
    if n_rid <> '{}' then
        insert into refold.runs (rid, ns, run, status, created_at, workflow, name, key, summary)
            select r, p_ns, n, s, a, w, m, e, y
            from unnest(n_rid, n_run, n_status, n_at, n_workflow, n_name, n_key, n_summary) u(r, n, s, a, w, m, e, y);
    end if;
    if k_rid <> '{}' then -- other turns, and those who ask what became of this one, wait here
        perform 1 from refold.runs where rid = any(k_rid) and status <> '' order by rid for no key update;
        get diagnostics k = row_count;
        if k < cardinality(k_rid) then raise exception 'a run is gone' using errcode = 'RF002'; end if;
    end if;
    if u_rid <> '{}' then
        update refold.runs r set status = u.s, workflow = u.w, summary = u.y
            from unnest(u_rid, u_status, u_workflow, u_summary) u(rid, s, w, y) where r.rid = u.rid;
    end if;
    insert into refold.facts (rid, number, at, kind, data, turn, tx)
        select r, n, a, c, d, t, case when t is not null then pg_current_xact_id() end
        from unnest(f_rid, f_number, f_at, f_kind, f_data, f_turn) u(r, n, a, c, d, t);
    if v_rid <> '{}' then
        perform 1 from refold.commands c join unnest(v_rid, v_id, v_gen) v(rid, id, gen) using (rid, id)
            where c.generation = v.gen and c.state = 'h' and c.worker is not null for update of c;
        get diagnostics k = row_count;
        if k < cardinality(v_rid) then raise exception 'a lease has moved on' using errcode = 'RF001'; end if;
    end if;
    if g_rid <> '{}' then
        delete from refold.commands c using unnest(g_rid, g_id, g_gen) g(rid, id, gen)
            where c.rid = g.rid and c.id = g.id and (g.gen is null or (c.generation = g.gen and c.state = 'h' and c.worker is not null));
        get diagnostics k = row_count;
        if k < (select count(x) from unnest(g_gen) x) then raise exception 'a lease has moved on' using errcode = 'RF001'; end if;
    end if;
    if c_rid <> '{}' then -- s = p: it waits, and its run is paused
        if (select floor from refold.namespaces where ns = p_ns) <> c_floor then
            raise exception 'generations begin elsewhere' using errcode = 'RF003';
        end if;
        if c_again then
            insert into refold.commands as o (rid, id, ns, lane, place, tool, state, not_before, issued_at, generation, losses,
                    hand_backs, until, timeout, beat_at, claimed_at, lim, prefer, prefer_until, plan, data)
                select r, i, p_ns, l, nextval('refold.places'), t, (case s when 'p' then 'w' else s end)::"char", b, p_now, g,
                    0, 0, 0, m, 0, 0, '', f, fu, p, d
                from unnest(c_rid, c_id, c_lane, c_tool, c_state, c_nb, c_gen, c_plan, c_timeout, c_prefer, c_prefer_until, c_data)
                    with ordinality u(r, i, l, t, s, b, g, p, m, f, fu, d, n) order by n
                on conflict (rid, id) do update set lane = excluded.lane, place = excluded.place, tool = excluded.tool,
                    state = excluded.state, not_before = excluded.not_before, issued_at = excluded.issued_at, worker = null,
                    until = 0, deadline = null, timeout = excluded.timeout, prefer = excluded.prefer,
                    prefer_until = excluded.prefer_until, plan = excluded.plan, data = excluded.data;
        else
            insert into refold.commands (rid, id, ns, lane, place, tool, state, not_before, issued_at, generation, losses,
                    hand_backs, worker, until, deadline, timeout, beat_at, claimed_at, lim, prefer, prefer_until, plan, data)
                select r, i, p_ns, l, nextval('refold.places'), t, (case s when 'p' then 'w' else s end)::"char", b, p_now, g, 0, 0,
                    case when s = 'h' then c_worker end, case when s = 'h' then c_until else 0 end,
                    case when s = 'h' then p_now + m end, m, case when s = 'h' then p_now else 0 end,
                    case when s = 'h' then p_now else 0 end, '', f, fu, p, d
                from unnest(c_rid, c_id, c_lane, c_tool, c_state, c_nb, c_gen, c_plan, c_timeout, c_prefer, c_prefer_until, c_data)
                    with ordinality u(r, i, l, t, s, b, g, p, m, f, fu, d, n) order by n;
        end if;
        if array_position(c_state, 'w') is not null then
            perform refold.stand_v1(array_agg(c.lane), array_agg(c.rid), array_agg(c.place))
                from refold.commands c join unnest(c_rid, c_id, c_state) u(rid, id, s) using (rid, id)
                where u.s = 'w' and c.state = 'w' having count(*) > 0;
        end if;
    end if;
    return refold.waits_v1(p_ns, p_queues);
end $$;
