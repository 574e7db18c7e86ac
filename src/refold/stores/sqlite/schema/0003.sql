-- What a worker can take, as JSON lists of tools and queues: so that a run which nobody can serve can say so.
alter table workers add column tools text; -- null: unknown
alter table workers add column queues text; -- null: all
