-- Shares go round by their names, limits keep commands back, and a lane has the commands of one tool, so that what a
-- worker cannot take costs it nothing. Functions of the first schema stay for processes of an older release.

alter table refold.lanes add column waiting boolean not null default true; -- a run is in one of its lines, or was lately
alter table refold.lanes alter column waiting set default false;
create index lanes_open on refold.lanes (share) where waiting;
create index shares_round on refold.shares (ns, queue, priority desc, name) where waiting;
create index commands_limited on refold.commands (ns, lim) where state = 'h' and lim <> '';

-- How many commands of a share are claimed in a round, as an operator has set it; `shares` has it for each queue.
create table refold.weights (
    ns int not null,
    share text collate "C" not null,
    weight int not null,
    primary key (ns, share)
);

-- How many commands with a limit may run at a time, and start in a second. Slots are counted from the leases. Only claims
-- lock a row here, and they never wait for it.
create table refold.limits (
    ns int not null,
    name text collate "C" not null,
    slots int, -- null: any number
    rate double precision, -- starts in a second; null: any number
    burst double precision not null,
    tokens double precision not null, -- commands that may start, at the moment `at`
    at bigint not null,
    primary key (ns, name)
) with (fillfactor = 50);

-- A share that an operator gives a weight, and one that a process makes, must see each other: hence the lock.
create function refold.set_weight_v1(p_ns int, p_share text, p_weight int) returns void language plpgsql as $$
begin
    perform pg_advisory_xact_lock(76, p_ns);
    if p_weight is null then
        delete from refold.weights where ns = p_ns and share = p_share;
    else
        insert into refold.weights (ns, share, weight) values (p_ns, p_share, p_weight)
            on conflict (ns, share) do update set weight = excluded.weight;
    end if;
    update refold.shares s set weight = coalesce(p_weight, 1)
        from (select share from refold.shares where ns = p_ns and name = p_share order by share for no key update) f
        where s.share = f.share;
end $$;

create function refold.set_limit_v1(
    p_ns int, p_name text, p_slots int, p_rate double precision, p_burst double precision, p_now bigint)
returns void language plpgsql as $$
begin
    insert into refold.limits as l (ns, name, slots, rate, burst, tokens, at)
        values (p_ns, p_name, p_slots, p_rate, p_burst, p_burst, p_now)
        on conflict (ns, name) do update set slots = excluded.slots, rate = excluded.rate, burst = excluded.burst,
            tokens = case when l.rate is null then excluded.burst
                else least(l.burst, l.tokens + greatest(p_now - l.at, 0) / 1e6 * l.rate) end,
            at = greatest(l.at, p_now);
end $$;

-- The lane of a command; asked once by each process and kept.
create function refold.lane_v2(
    p_ns int, p_queue text, p_priority bigint, p_share text, p_kind text, p_needs text, p_lim text)
returns int language plpgsql as $$
declare s int; l int;
begin
    select share into s from refold.shares where ns = p_ns and queue = p_queue and priority = p_priority and name = p_share;
    if not found then
        perform pg_advisory_xact_lock_shared(76, p_ns);
        insert into refold.shares (ns, queue, priority, name, weight)
            values (p_ns, p_queue, p_priority, p_share,
                coalesce((select w.weight from refold.weights w where w.ns = p_ns and w.share = p_share), 1))
            on conflict do nothing;
        select share into s from refold.shares
            where ns = p_ns and queue = p_queue and priority = p_priority and name = p_share;
    end if;
    insert into refold.lanes (share, kind, needs, lim) values (s, p_kind, p_needs, p_lim) on conflict do nothing;
    select lane into l from refold.lanes where share = s and kind = p_kind and needs = p_needs and lim = p_lim;
    return l;
end $$;

-- A run has something waiting in these lanes. It has one turn in all lanes of a share. The caller holds the run, or the
-- command that came back. The locks keep a claim from taking the line, and the sweep from taking lane or share, for empty
-- while this is not committed yet.
create function refold.stand_v2(p_lanes int[], p_rids bigint[], p_places bigint[]) returns void language plpgsql as $$
declare g_lane int[]; g_rid bigint[]; g_turn bigint[]; g_place bigint[];
begin
    perform pg_advisory_xact_lock_shared(77, share)
        from (select distinct share from refold.lanes where lane = any(p_lanes) order by share) s;
    update refold.shares s set waiting = true
        from (select o.share from refold.shares o
              where o.share in (select share from refold.lanes where lane = any(p_lanes)) and not o.waiting
              order by o.share for no key update) f
        where s.share = f.share;
    with g as materialized (
        select u.lane, u.rid, a.share, min(u.place) as place
        from unnest(p_lanes, p_rids, p_places) u(lane, rid, place) join refold.lanes a on a.lane = u.lane
        group by u.lane, u.rid, a.share),
    t as materialized (
        select x.share, x.rid, coalesce((
                select min(o.turn) from refold.lines o join refold.lanes b on b.lane = o.lane
                where o.rid = x.rid and b.share = x.share), nextval('refold.turns')) as turn
        from (select share, rid, min(place) as place from g group by share, rid order by min(place)) x)
    select array_agg(g.lane), array_agg(g.rid), array_agg(t.turn), array_agg(g.place)
        into g_lane, g_rid, g_turn, g_place from g join t on t.share = g.share and t.rid = g.rid;
    update refold.lanes a set waiting = true, floor = least(a.floor, f.turn)
        from (select o.lane, u.turn from refold.lanes o
              join (select x.lane, min(x.turn) as turn from unnest(g_lane, g_turn) x(lane, turn) group by x.lane) u on u.lane = o.lane
              where not o.waiting or o.floor > u.turn order by o.lane for no key update of o) f
        where a.lane = f.lane;
    insert into refold.lines (lane, rid, turn, first)
        select u.lane, u.rid, u.turn, u.place from unnest(g_lane, g_rid, g_turn, g_place) u(lane, rid, turn, place)
        order by u.rid, u.lane
        on conflict (rid, lane) do update set first = excluded.first where lines.first > excluded.first;
    perform 1 from refold.lines l join unnest(p_lanes, p_rids) u(lane, rid) using (lane, rid) for key share of l;
end $$;

-- What a process of an older release, and the functions that did not change, put into line.
create or replace function refold.stand_v1(p_lanes int[], p_rids bigint[], p_places bigint[]) returns void
language plpgsql as $$
begin
    perform refold.stand_v2(p_lanes, p_rids, p_places);
end $$;

-- Whether something waits in one of these queues.
create function refold.waits_v2(p_ns int, p_queues text[]) returns boolean language sql stable as $$
    select exists (
        select 1 from refold.shares s join refold.lanes a on a.share = s.share and a.waiting
        join refold.lines l on l.lane = a.lane
        where s.ns = p_ns and s.waiting and (p_queues is null or s.queue = any(p_queues)) limit 1) $$;

-- How many more commands of a limit may start now; null: any number. Whoever is told a number above 0 holds the limit
-- until its commit. Slots are counted from leases, so none can be lost. `again`: when there may be more.
create function refold.allowance_v1(p_ns int, p_lim text, p_now bigint, out room int, out again bigint)
language plpgsql as $$
declare m record; n int; t double precision;
begin
    for look in 1 .. 2 loop
        if look = 1 then
            select * into m from refold.limits l where l.ns = p_ns and l.name = p_lim;
            if not found then return; end if;
        else
            select * into m from refold.limits l where l.ns = p_ns and l.name = p_lim for no key update skip locked;
            if not found then -- another claim is at it
                room := 0; again := p_now;
                return;
            end if;
        end if;
        room := 1000000;
        if m.slots is not null then
            select count(*) into n from (
                select 1 from refold.commands c where c.ns = p_ns and c.lim = p_lim and c.lim <> '' and c.state = 'h'
                limit m.slots) x;
            room := m.slots - n;
        end if;
        if m.rate is not null then
            t := least(m.burst, m.tokens + greatest(p_now - m.at, 0) / 1e6 * m.rate);
            if t < 1 - 1e-9 then again := greatest(p_now, m.at) + ceil((1 - t) / m.rate * 1e6)::bigint; end if;
            room := least(room, floor(t + 1e-9)::int);
        end if;
        room := greatest(room, 0);
        exit when room = 0;
    end loop;
end $$;

-- Lease what waits: the highest priority, then the worker's order of queues; there shares go round by their names, each
-- with as many commands as its weight; in a share runs take turns, in a run the order of issue. What has no free place in
-- the worker, or is kept back by a limit, is passed over. It never waits for a lock, so it may be at the end of any
-- transaction. The claimer keeps its own places in the rounds (the share it served last in each queue and priority, and
-- what is left of its weight): fair for each claimer, so fair for all, and nothing is written for it.
create function refold.claim_v2(
    p_ns int, p_worker text, p_queues text[], p_tools text[], p_runs text[], p_kinds text[], p_places bigint[],
    p_lease bigint, p_limit int, p_now bigint, p_cursors int[], p_lefts int[])
returns table (
    o_run text, o_rid bigint, o_head bigint, o_generation bigint, o_until bigint, o_plan text, o_losses int,
    o_deadline bigint, o_data bytea, o_cursors int[], o_lefts int[], o_more boolean, o_again bigint)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    g record; s record; a record; free bigint[]; mine bigint[]; rids bigint[]; ids text[]; soon bigint;
    curs int[]; lefts int[]; g_at int; served text; quota int; position text; inclusive boolean; done int[]; need int; took int;
    r_lim text[]; r_room int[]; r_taken int[]; rivals boolean;
    all_ls int[]; all_kinds text[]; all_lims text[]; line_ls int[]; ls int[]; batch int; room int; again bigint; at int;
    skip_lane int[]; skip_rid bigint[]; locked boolean; k int; per int;
    f_lane int[]; f_rid bigint[]; f_first bigint[]; f_run int[]; n_place bigint[]; c_rid bigint[]; c_id text[]; c_lane int[];
    t_rid bigint[]; t_turn bigint[];
begin
    rids := '{}'; ids := '{}'; free := p_places; curs := p_cursors; lefts := p_lefts;
    r_lim := '{}'; r_room := '{}'; r_taken := '{}';
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
        select u.n, o.name into g_at, served from unnest(curs) with ordinality u(share, n)
            join refold.shares o on o.share = u.share where o.ns = p_ns and o.queue = g.queue and o.priority = g.priority
            order by u.n desc limit 1;
        if g_at is null then position := ''; inclusive := true; else position := served; inclusive := lefts[g_at] > 0; end if;
        done := '{}';
        while cardinality(rids) < p_limit loop
            -- the share that is being served, or the next one round
            select sh.* into s from (
                (select o.share, o.name, o.weight from refold.shares o
                 where o.ns = p_ns and o.queue = g.queue and o.priority = g.priority and o.waiting
                     and o.name >= position and (inclusive or o.name > position) and not o.share = any(done)
                 order by o.name limit 1)
                union all
                (select o.share, o.name, o.weight from refold.shares o
                 where o.ns = p_ns and o.queue = g.queue and o.priority = g.priority and o.waiting
                     and o.name <= position and (not inclusive or o.name < position) and not o.share = any(done)
                 order by o.name limit 1)) sh limit 1;
            exit when not found;
            rivals := exists (
                select 1 from refold.shares o
                where o.ns = p_ns and o.queue = g.queue and o.priority = g.priority and o.waiting
                    and o.share <> s.share and not o.share = any(done));
            quota := case when g_at is not null and curs[g_at] = s.share and lefts[g_at] > 0 then lefts[g_at] else s.weight end;
            need := p_limit - cardinality(rids);
            if rivals then need := least(need, quota); end if;
            took := 0; skip_lane := '{}'; skip_rid := '{}';
            select coalesce(array_agg(o.lane), '{}'), coalesce(array_agg(o.kind), '{}'), coalesce(array_agg(o.lim), '{}')
                into all_ls, all_kinds, all_lims from refold.lanes o
                where o.share = s.share and o.waiting and (p_tools is null or o.needs = '' or o.needs = any(p_tools));
            while took < need and all_ls <> '{}' loop
                -- the lanes that are open, and no more commands at once than keep all of them open
                ls := '{}'; batch := need - took;
                for i in 1 .. cardinality(all_ls) loop
                    at := array_position(p_kinds, all_kinds[i]);
                    continue when at is not null and free[at] <= 0;
                    if at is not null and free[at] < batch then batch := free[at]; end if;
                    if all_lims[i] <> '' then
                        at := array_position(r_lim, all_lims[i]);
                        if at is null then
                            select x.room, x.again into room, again from refold.allowance_v1(p_ns, all_lims[i], p_now) x;
                            r_lim := r_lim || all_lims[i]; r_room := r_room || room; r_taken := r_taken || 0;
                            soon := least(soon, again);
                            at := cardinality(r_lim);
                        end if;
                        continue when r_room[at] <= 0;
                        if r_room[at] < batch then batch := r_room[at]; end if;
                    end if;
                    ls := ls || all_ls[i];
                end loop;
                exit when ls = '{}';
                locked := true;
                if mine is null then
                    select array_agg(x.lane order by x.run, x.first), array_agg(x.rid order by x.run, x.first),
                            array_agg(x.first order by x.run, x.first), array_agg(x.run order by x.run, x.first)
                        into f_lane, f_rid, f_first, f_run from (
                            select y.*, dense_rank() over (order by y.turn) as run
                            from (select o.lane, o.floor from refold.lanes o where o.lane = any(ls)) o
                            cross join lateral (
                                select l.lane, l.rid, l.turn, l.first from refold.lines l
                                where l.lane = o.lane and l.turn >= o.floor and (skip_rid = '{}' or not exists (
                                    select 1 from unnest(skip_lane, skip_rid) z(lane, rid)
                                    where z.lane = l.lane and z.rid = l.rid))
                                order by l.turn limit batch for no key update skip locked) y) x
                        where x.run <= batch;
                    if f_lane is null and took = 0 and skip_rid = '{}' then
                        locked := false; -- others hold all lines: take what they leave, and touch no line
                        select array_agg(x.lane order by x.run, x.first), array_agg(x.rid order by x.run, x.first),
                                array_agg(x.first order by x.run, x.first), array_agg(x.run order by x.run, x.first)
                            into f_lane, f_rid, f_first, f_run from (
                                select y.*, dense_rank() over (order by y.turn) as run
                                from (select o.lane, o.floor from refold.lanes o where o.lane = any(ls)) o
                                cross join lateral (
                                    select l.lane, l.rid, l.turn, l.first from refold.lines l
                                    where l.lane = o.lane and l.turn >= o.floor order by l.turn limit batch) y) x
                            where x.run <= batch;
                    end if;
                else
                    select array_agg(x.lane order by x.run, x.first), array_agg(x.rid order by x.run, x.first),
                            array_agg(x.first order by x.run, x.first), array_agg(x.run order by x.run, x.first)
                        into f_lane, f_rid, f_first, f_run from (
                            select y.*, dense_rank() over (order by y.turn) as run from (
                                select l.lane, l.rid, l.turn, l.first from refold.lines l
                                where l.rid = any(mine) and l.lane = any(ls) and (skip_rid = '{}' or not exists (
                                    select 1 from unnest(skip_lane, skip_rid) z(lane, rid)
                                    where z.lane = l.lane and z.rid = l.rid))
                                for no key update skip locked) y) x
                        where x.run <= batch;
                end if;
                exit when f_lane is null;
                k := f_run[cardinality(f_run)]; per := (batch + k - 1) / k;
                -- picked first, written then: in one statement the planner would guess at the number of rows
                select array_agg(p.rid order by p.round, p.run), array_agg(p.id order by p.round, p.run),
                        array_agg(p.lane order by p.round, p.run)
                    into c_rid, c_id, c_lane from (
                        select q.* from (
                            select f.run, f.rid, f.lane, c.id, row_number() over (partition by f.rid order by c.place) as round
                            from unnest(f_lane, f_rid, f_first, f_run) f(lane, rid, first, run)
                            cross join lateral (
                                select c.id, c.place from refold.commands c
                                where c.lane = f.lane and c.rid = f.rid and c.state = 'w' and c.place >= f.first
                                    and (p_tools is null or c.tool = any(p_tools))
                                    and (c.prefer = '' or c.prefer = p_worker or c.prefer_until <= p_now or not exists (
                                        select 1 from refold.workers w
                                        where w.ns = p_ns and w.worker = c.prefer and w.seen_until > p_now))
                                order by c.place limit per for update skip locked) c) q
                        order by q.round, q.run limit batch) p;
                if c_rid is not null then
                    update refold.commands c set state = 'h', generation = c.generation + 1, worker = p_worker,
                        until = p_now + p_lease, deadline = p_now + c.timeout, claimed_at = p_now, beat_at = p_now
                        from unnest(c_rid, c_id) p(rid, id) where c.rid = p.rid and c.id = p.id;
                    took := took + cardinality(c_rid); rids := rids || c_rid; ids := ids || c_id;
                    for i in 1 .. cardinality(c_lane) loop
                        at := array_position(all_ls, c_lane[i]);
                        k := array_position(r_lim, all_lims[at]);
                        if k is not null then r_room[k] := r_room[k] - 1; r_taken[k] := r_taken[k] + 1; end if;
                        at := array_position(p_kinds, all_kinds[at]);
                        if at is not null then free[at] := free[at] - 1; end if;
                    end loop;
                end if;
                if locked then -- a run that was served is behind the others now in all lanes of the share, and fronts move on
                    t_rid := '{}'; t_turn := '{}';
                    if c_rid is not null then
                        select array_agg(x.rid), array_agg(x.turn) into t_rid, t_turn from (
                            select o.rid, nextval('refold.turns') as turn from (
                                select u.rid from unnest(c_rid) with ordinality u(rid, n) group by u.rid order by max(u.n)) o) x;
                        select array_agg(o.lane) into line_ls from refold.lanes o where o.share = s.share and o.waiting;
                        if cardinality(line_ls) > 1 then
                            select f_lane || coalesce(array_agg(x.lane), '{}'), f_rid || coalesce(array_agg(x.rid), '{}'),
                                    f_first || coalesce(array_agg(x.first), '{}')
                                into f_lane, f_rid, f_first from (
                                    select l.lane, l.rid, l.first from refold.lines l
                                    where l.rid = any(t_rid) and l.lane = any(line_ls) and not exists (
                                        select 1 from unnest(f_lane, f_rid) f(lane, rid)
                                        where f.lane = l.lane and f.rid = l.rid)
                                    for no key update skip locked) x;
                        end if;
                    end if;
                    select array_agg((
                        select c.place from refold.commands c
                        where c.lane = u.lane and c.rid = u.rid and c.state = 'w' and c.place >= u.first
                        order by c.place limit 1) order by u.n)
                        into n_place from unnest(f_lane, f_rid, f_first) with ordinality u(lane, rid, first, n);
                    update refold.lines l set turn = coalesce(r.turn, l.turn), first = coalesce(r.place, l.first)
                        from (select u.lane, u.rid, u.place, t_turn[array_position(t_rid, u.rid)] as turn
                              from unnest(f_lane, f_rid, n_place) u(lane, rid, place)) r
                        where l.lane = r.lane and l.rid = r.rid and (r.turn is not null or r.place > l.first);
                    for i in 1 .. cardinality(f_lane) loop -- a line without commands is none, unless its run is about to
                        if n_place[i] is null then         -- issue more: then its lock is not to be had
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
                    where c_rid is null or not u.rid = any(c_rid);
                exit when not locked;
            end loop;
            if took > 0 then -- its place in the round
                if took <= quota then
                    quota := quota - took;
                else
                    quota := (s.weight - (took - quota) % s.weight) % s.weight;
                end if;
                if g_at is null then
                    curs := curs || s.share; lefts := lefts || quota; g_at := cardinality(curs);
                else
                    curs[g_at] := s.share; lefts[g_at] := quota;
                end if;
                position := s.name; inclusive := quota > 0;
            end if;
            if took < need then
                done := done || s.share;
                if took = 0 then position := s.name; inclusive := false; end if;
            end if;
        end loop;
        exit when cardinality(rids) >= p_limit;
    end loop;
    for i in 1 .. cardinality(r_lim) loop
        if r_taken[i] > 0 then
            update refold.limits l
                set tokens = least(l.burst, l.tokens + greatest(p_now - l.at, 0) / 1e6 * l.rate) - r_taken[i],
                    at = greatest(p_now, l.at)
                where l.ns = p_ns and l.name = r_lim[i] and l.rate is not null
                returning case when l.tokens < 1 - 1e-9 then l.at + ceil((1 - l.tokens) / l.rate * 1e6)::bigint end into again;
            if found and r_room[i] <= 0 then soon := least(soon, again); end if;
        end if;
    end loop;
    if rids = '{}' and soon is not null then
        o_again := soon;
        return next;
        return;
    end if;
    return query
        select r.run, u.rid, (select f.number from refold.facts f where f.rid = u.rid order by f.number desc limit 1),
            c.generation, c.until, c.plan, c.losses, c.deadline, c.data, curs, lefts, refold.waits_v2(p_ns, p_queues), soon
        from unnest(rids, ids) with ordinality u(rid, id, n)
        join refold.commands c on c.rid = u.rid and c.id = u.id join refold.runs r on r.rid = u.rid order by u.n;
end $$;

-- Lanes and shares that no run waits in any more, and how far the lanes have come. At most once a second in a namespace.
create function refold.tidy_v2(p_ns int) returns void language plpgsql as $$
declare s int;
begin
    for s in select sh.share from refold.shares sh where sh.ns = p_ns and sh.waiting and exists (
            select 1 from refold.lanes a where a.share = sh.share and a.waiting
                and not exists (select 1 from refold.lines l where l.lane = a.lane))
        or sh.ns = p_ns and sh.waiting and sh.name <> ''
            and not exists (select 1 from refold.lanes a where a.share = sh.share and a.waiting)
        order by 1
    loop
        if pg_try_advisory_xact_lock(77, s) then -- no run is about to join one of its lines
            update refold.lanes a set waiting = false where a.share = s and a.waiting
                and not exists (select 1 from refold.lines l where l.lane = a.lane);
            update refold.shares sh set waiting = false where sh.share = s and sh.name <> ''
                and not exists (select 1 from refold.lanes a where a.share = s and a.waiting);
        end if;
    end loop;
    update refold.lanes a set floor = f.turn
        from (select b.lane, (select l.turn from refold.lines l where l.lane = b.lane order by l.turn limit 1) as turn
              from refold.lanes b join refold.shares sh using (share) where sh.ns = p_ns and sh.waiting and b.waiting
              for no key update of b skip locked) f
        where a.lane = f.lane and f.turn is not null and (a.floor + 1000 < f.turn or f.turn < a.floor);
end $$;

-- What a turn writes of any number of runs, in one statement. What was remembered is verified, and all is written or
-- nothing (unique_violation: the head has moved; RF001: a lease has; RF002: a run has gone; RF003: generations begin
-- elsewhere). Commands that wait join their lines; those that are leased to the reporting worker (state h) are never seen
-- by a claim. Returns whether others wait: then the next turn issues its commands as waiting and claims, in the same
-- round trip.
create function refold.close_turn_v2(
    p_ns int, p_now bigint, p_queues text[],
    n_rid bigint[], n_run text[], n_status text[], n_at bigint[], n_workflow text[], n_name text[], n_key text[], n_summary bytea[],
    u_rid bigint[], u_status text[], u_workflow text[], u_summary bytea[], k_rid bigint[], -- rows that change; runs that go on
    f_rid bigint[], f_number bigint[], f_at bigint[], f_kind text[], f_data bytea[], f_turn text[],
    v_rid bigint[], v_id text[], v_gen bigint[], -- commands that were reported and do not end
    g_rid bigint[], g_id text[], g_gen bigint[], -- commands that end, by the generation of their holder; null: any holder
    c_rid bigint[], c_id text[], c_lane int[], c_tool text[], c_state text[], c_nb bigint[], c_gen bigint[], c_plan text[],
    c_timeout bigint[], c_lim text[], c_prefer text[], c_prefer_until bigint[], c_data bytea[], c_worker text, c_until bigint, c_again boolean, c_floor bigint)
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
                    0, 0, 0, m, 0, 0, v, f, fu, p, d
                from unnest(c_rid, c_id, c_lane, c_tool, c_state, c_nb, c_gen, c_plan, c_timeout, c_lim, c_prefer,
                        c_prefer_until, c_data)
                    with ordinality u(r, i, l, t, s, b, g, p, m, v, f, fu, d, n) order by n
                on conflict (rid, id) do update set lane = excluded.lane, place = excluded.place, tool = excluded.tool,
                    state = excluded.state, not_before = excluded.not_before, issued_at = excluded.issued_at, worker = null,
                    until = 0, deadline = null, timeout = excluded.timeout, lim = excluded.lim, prefer = excluded.prefer,
                    prefer_until = excluded.prefer_until, plan = excluded.plan, data = excluded.data;
        else
            insert into refold.commands (rid, id, ns, lane, place, tool, state, not_before, issued_at, generation, losses,
                    hand_backs, worker, until, deadline, timeout, beat_at, claimed_at, lim, prefer, prefer_until, plan, data)
                select r, i, p_ns, l, nextval('refold.places'), t, (case s when 'p' then 'w' else s end)::"char", b, p_now, g, 0, 0,
                    case when s = 'h' then c_worker end, case when s = 'h' then c_until else 0 end,
                    case when s = 'h' then p_now + m end, m, case when s = 'h' then p_now else 0 end,
                    case when s = 'h' then p_now else 0 end, v, f, fu, p, d
                from unnest(c_rid, c_id, c_lane, c_tool, c_state, c_nb, c_gen, c_plan, c_timeout, c_lim, c_prefer,
                        c_prefer_until, c_data)
                    with ordinality u(r, i, l, t, s, b, g, p, m, v, f, fu, d, n) order by n;
        end if;
        if array_position(c_state, 'w') is not null then
            perform refold.stand_v2(array_agg(c.lane), array_agg(c.rid), array_agg(c.place))
                from refold.commands c join unnest(c_rid, c_id, c_state) u(rid, id, s) using (rid, id)
                where u.s = 'w' and c.state = 'w' having count(*) > 0;
        end if;
    end if;
    return refold.waits_v2(p_ns, p_queues);
end $$;
