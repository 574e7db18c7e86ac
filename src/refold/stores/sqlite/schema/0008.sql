-- Small things that belong to no run: schedules, calendars, entries of catalogues.
create table documents (
    namespace text not null default 'default',
    kind text not null,
    id text not null,
    version integer not null, -- grows with every put, so that a writer that has not seen the last one is refused
    due integer, -- when somebody has to look at it; null: never
    data blob not null,
    seal integer not null,
    primary key (namespace, kind, id)
) strict, without rowid;

create index documents_by_due on documents (namespace, kind, due) where due is not null;
