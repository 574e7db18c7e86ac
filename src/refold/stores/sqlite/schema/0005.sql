-- What the store's clock showed in a recent commit. The machine's clock may be set back, and this one continues from here.
create table marks (
    namespace text not null default 'default' primary key,
    at integer not null,
    steady integer not null, -- what the machine's steady clock showed then, in microseconds since its start
    boot text not null, -- which start that was; empty: it is not known
    seal integer not null
) strict, without rowid;
