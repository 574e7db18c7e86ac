-- What lists of runs are found by. It follows from the summary, which is sealed and is compared with what was asked for.
alter table runs add column workflow text not null default '';
alter table runs add column name text not null default '';
alter table runs add column key text not null default '';

update runs set
    workflow = coalesce(json_extract(cast(summary as text), '$.workflow'), ''),
    name = coalesce(json_extract(cast(summary as text), '$.name'), ''),
    key = coalesce(json_extract(cast(summary as text), '$.key'), '')
where json_valid(cast(summary as text));

create index runs_by_workflow on runs (namespace, workflow, created_at);
create index runs_by_name on runs (namespace, name, created_at) where name <> '';
create index runs_by_key on runs (namespace, key, created_at) where key <> '';

create table labels (
    namespace text not null default 'default',
    run text not null,
    label text not null, -- name=value
    created_at integer not null, -- the start of the run
    primary key (namespace, run, label)
) strict, without rowid;

create index runs_by_label on labels (namespace, label, created_at);
