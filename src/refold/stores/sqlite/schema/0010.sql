-- The run that has started this one; empty: none has. Lists show runs without a parent, or those of one parent.
alter table runs add column parent text not null default '';

update runs set parent = coalesce(json_extract(cast(summary as text), '$.parent'), '')
where json_valid(cast(summary as text));

create index runs_by_parent on runs (namespace, parent, created_at);
