-- Where the body of a command runs: empty, in the process of the engine; or the kind of executor that it needs a place
-- in. It is part of the lane, so that a worker without a free place does not look at what it could not start. Commands of
-- an older file have none.
alter table commands add column executor text not null default '';

drop index commands_first;
drop index commands_waiting;

create index commands_first on commands (namespace, queue, executor, priority desc, turn) where turn is not null;
create index commands_waiting on commands (namespace, run, queue, executor, priority desc, place)
    where state = 'waiting';
