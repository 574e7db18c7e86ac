-- Shares go round in each queue and priority, and limits keep commands back. A line is (queue, priority, share); its runs
-- take turns. A lane is the part of a line that a worker can take or not: commands of one tool, kind of executor and
-- limit. The first waiting command of each run in a lane carries the run's `turn`, which is the same in all lanes of the
-- line. Commands of an older file have no share and no limit.
alter table commands add column share text not null default '';
alter table commands add column lim text not null default ''; -- the limit that it counts for, or ''
alter table commands add column lane text not null default ''; -- follows from tool, executor and limit

update commands set
    lane = iif(executor = '' and substr(tool, 1, 1) <> '[', tool, json_array(tool, executor, '')), turn = null;

drop index commands_first;
drop index commands_waiting;

create index commands_waiting on commands (namespace, run, queue, priority desc, share, lane, place)
    where state = 'waiting';

update commands set turn = (
        select min(other.place) from commands other indexed by commands_waiting
        where other.namespace = commands.namespace and other.run = commands.run and other.queue = commands.queue
            and other.priority = commands.priority and other.share = commands.share and other.state = 'waiting')
    where state = 'waiting'
    and place = (
        select min(other.place) from commands other indexed by commands_waiting
        where other.namespace = commands.namespace and other.run = commands.run and other.queue = commands.queue
            and other.priority = commands.priority and other.share = commands.share and other.lane = commands.lane
            and other.state = 'waiting')
    and exists (
        select 1 from runs
        where runs.namespace = commands.namespace and runs.run = commands.run and runs.status <> 'paused');

create index commands_first on commands (namespace, queue, priority desc, share, lane, turn) where turn is not null;
create index commands_limited on commands (namespace, lim) where state = 'leased' and lim <> '';

-- How many commands of a share are claimed in a round; a share without a row has 1.
create table weights (
    namespace text not null default 'default',
    share text not null,
    weight integer not null,
    seal integer not null,
    primary key (namespace, share)
) strict, without rowid;

-- How many commands with a limit may run at a time, and start in a second. Slots are counted from the leases.
create table limits (
    namespace text not null default 'default',
    name text not null,
    slots integer, -- null: any number
    rate real, -- starts in a second; null: any number
    burst real not null,
    tokens real not null, -- commands that may start, at the moment `at`
    at integer not null,
    seal integer not null,
    primary key (namespace, name)
) strict, without rowid;
