-- The first schema. `facts`, `plans`, `blobs`, `letters` and `streams` are the truth; `runs`, `commands` and `timers`
-- follow from it and can be rebuilt; `snapshots` may always be deleted. A namespace sees nothing of another one.
-- `seal` is a CRC over what the row says and what it is found by: a row that reads otherwise is named, not believed.

create table facts (
    namespace text not null default 'default',
    run text not null,
    number integer not null, -- 1, 2, 3 ... without a gap
    at integer not null, -- microseconds since 1970, like every moment here
    kind text not null, -- for people; the data says it too
    data blob not null,
    turn text, -- on the first fact that a turn wrote for the run: settles what an ambiguous commit did
    seal integer not null,
    primary key (namespace, run, number)
) strict, without rowid;

create table runs (
    namespace text not null default 'default',
    run text not null,
    head integer not null, -- the number of its last fact; a turn that expects another one is refused
    status text not null,
    created_at integer not null,
    summary blob not null,
    seal integer not null,
    primary key (namespace, run)
) strict, without rowid;

create index runs_by_age on runs (namespace, created_at);
create index runs_by_status on runs (namespace, status, created_at);

create table plans (
    namespace text not null default 'default',
    hash text not null, -- of the data, which never changes
    data blob not null,
    primary key (namespace, hash)
) strict;

-- A command's life:
--
--   issued -> waiting            anybody may claim it
--   issued -> later              not before its moment; the first claim after that makes it waiting
--   waiting -> leased            claimed: the generation grows
--   leased -> waiting            handed back, or lost: the losses grow
--   any -> held                  nobody may claim it until it is issued again
--   any -> waiting or later      issued again, in a new place; generation and losses live on
--   any -> no row                settled or withdrawn, for good
--
-- A lane is (queue, priority). Its runs take turns: the first waiting command of each run in the lane, and no other,
-- carries the run's `turn`, unless the run is paused. To claim is to take the smallest turn of the best lane and to
-- give the run's next command there a turn behind all others, so the cost does not grow with what waits.
create table commands (
    namespace text not null default 'default',
    run text not null,
    id text not null,
    queue text not null,
    priority integer not null,
    tool text not null,
    place integer not null, -- the order of issue
    not_before integer not null,
    plan text not null,
    state text not null, -- waiting, later, leased or held
    generation integer not null, -- grows with every claim, so late reports are refused
    losses integer not null, -- leases that ran out
    worker text, -- who holds it, while it is leased
    until integer not null default 0, -- when the lease runs out
    deadline integer, -- the command's timeout
    beat_at integer not null default 0, -- the last sign of life of its holder
    claimed_at integer not null default 0,
    data blob not null,
    seal integer not null, -- over all but the turn
    turn integer,
    primary key (namespace, run, id)
) strict, without rowid;

create index commands_first on commands (namespace, queue, priority desc, turn) where turn is not null;
create index commands_waiting on commands (namespace, run, queue, priority desc, place) where state = 'waiting';
create index commands_later on commands (namespace, not_before) where state = 'later';
create index commands_leased on commands (namespace, worker) where state = 'leased';

-- Where generations begin; a rebuild of the commands raises it above every one it may have forgotten.
create table generations (
    namespace text not null default 'default' primary key,
    floor integer not null
) strict, without rowid;

create table timers (
    namespace text not null default 'default',
    run text not null,
    key text not null,
    due integer not null,
    seal integer not null,
    primary key (namespace, run, key)
) strict, without rowid;

create index timers_by_due on timers (namespace, due);

-- A letter is here from its sender's commit to its receiver's.
create table letters (
    number integer primary key, -- the order of writing
    namespace text not null default 'default',
    run text not null, -- the receiver
    key text not null,
    data blob not null,
    seal integer not null,
    unique (namespace, run, key)
) strict;

create table blobs (
    namespace text not null default 'default',
    run text not null,
    hash text not null,
    data blob not null,
    seal integer not null,
    primary key (namespace, run, hash)
) strict;

create table snapshots (
    namespace text not null default 'default',
    run text not null,
    data blob not null,
    seal integer not null,
    primary key (namespace, run)
) strict;

-- What bodies published and logged while they ran; no facts.
create table streams (
    namespace text not null default 'default',
    run text not null,
    n integer not null,
    data blob not null,
    seal integer not null,
    primary key (namespace, run, n)
) strict, without rowid;

-- Whoever claims holds a file lock for life; a worker whose lock is free is dead, and its leases run out at once.
create table workers (
    namespace text not null default 'default',
    worker text not null,
    lock text not null, -- a file in the folder of the locks
    primary key (namespace, worker)
) strict, without rowid;
