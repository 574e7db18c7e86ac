-- Work whose failure was final, by the run that ended with it; follows from the facts and can be rebuilt.
create table dead (
    namespace text not null default 'default',
    run text not null,
    n integer not null, -- 0, 1, 2 ... in the run
    fingerprint text not null, -- the same for the same reason in the same tool
    at integer not null, -- when the run ended
    data blob not null,
    seal integer not null,
    primary key (namespace, run, n)
) strict, without rowid;

create index dead_by_age on dead (namespace, at desc, run, n);
create index dead_by_fingerprint on dead (namespace, fingerprint, at desc, run, n);
