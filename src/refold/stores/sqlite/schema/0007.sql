-- The number of the last change of a run, so that a reader can ask which runs have changed since then. Each change gets
-- the next number, unless the run is the one that changed last: then its head tells the changes apart. Runs of an older
-- file count as changed in the order of their starts.
alter table runs add column change integer not null default 0;

update runs set change = numbered.number from (
    select namespace, run, row_number() over (partition by namespace order by created_at, run) as number from runs
) as numbered where runs.namespace = numbered.namespace and runs.run = numbered.run;

create index runs_by_change on runs (namespace, change);

-- The highest number of a run that was removed: no number is used twice.
create table removed_changes (
    namespace text not null default 'default' primary key,
    change integer not null
) strict, without rowid;
