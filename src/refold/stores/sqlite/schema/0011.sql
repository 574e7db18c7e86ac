-- In which order the facts of all runs were committed: the number of each change, with the facts that it has brought, which
-- are those behind `after`, up to `until`. The last row of a run is open: what the run writes next belongs to it, unless
-- another run has changed meanwhile. The facts of an older file are those of the last change of their runs.
create table feed (
    namespace text not null default 'default',
    change integer not null,
    run text not null,
    after integer not null,
    until integer, -- null: up to the last fact
    before integer not null, -- the change of the run before this one; 0: there is none
    primary key (namespace, change)
) strict, without rowid;

insert into feed (namespace, change, run, after, until, before)
select namespace, change, run, 0, null, 0 from runs where change > 0;
