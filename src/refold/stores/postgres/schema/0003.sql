-- One process sweeps at a time: whoever moves `at` on looks for leases that are over and runs that are due.
create table refold.sweeps (
    ns int primary key,
    at bigint not null
) with (fillfactor = 50);

-- Whether the caller sweeps now: nobody has within the interval. An outage of the server is nobody's loss: if there was no
-- sweep for five intervals, leases that were not over before get their time again, so that workers can beat first.
create function refold.begin_sweep_v1(p_ns int, p_now bigint, p_every bigint, p_lease bigint)
returns boolean language plpgsql as $$
declare last bigint;
begin
    insert into refold.sweeps (ns, at) values (p_ns, 0) on conflict do nothing;
    select at into last from refold.sweeps where ns = p_ns and at <= p_now - p_every for no key update skip locked;
    if not found then return false; end if;
    update refold.sweeps set at = p_now where ns = p_ns;
    if last > 0 and last < p_now - 5 * p_every then
        update refold.commands c set until = p_now + p_lease
            from (select o.rid, o.id from refold.commands o
                  where o.ns = p_ns and o.state = 'h' and o.worker is not null and o.until > last
                  order by o.rid, o.id for update skip locked) h
            where c.rid = h.rid and c.id = h.id and c.until < p_now + p_lease;
        update refold.workers w set until = p_now + p_lease
            from (select o.worker from refold.workers o where o.ns = p_ns and o.until > last
                  order by o.worker for no key update skip locked) b
            where w.ns = p_ns and w.worker = b.worker and w.until < p_now + p_lease;
    end if;
    perform refold.tidy_v2(p_ns);
    return true;
end $$;
