-- Releases the permits of a pool that have lapsed and that nobody has locked, so that no renewal on
-- its way can bring them back: without its number a row is missing to one that has locked the
-- permit's other rows in time. To their holders it is as if others had taken their lanes. Called
-- while a pool has lanes above the cap, under its creation lock. Writes: permits. Locks: those
-- rows, without waiting.
create or replace function pglimit._retire_lapsed(pool text)
returns void
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_top integer;
    v_tids tid[];
begin
    select p.lane into v_top
    from pglimit.permits p
    where p.pool = _retire_lapsed.pool
    order by p.lane desc, p.turn desc
    limit 1;
    select array_agg(x.ctid)
    into v_tids
    from generate_series(1, v_top) g (lane)
    cross join lateral (
        select p.ctid, p.expires_at
        from pglimit.permits p
        where p.pool = _retire_lapsed.pool and p.lane = g.lane
        order by p.turn desc
        limit 1
    ) x
    where x.expires_at > '-infinity' and x.expires_at <= clock_timestamp();
    if v_tids is null then
        return;
    end if;
    update pglimit.permits p
    set permit_id = 0,
        expires_at = '-infinity'
    where p.ctid = any (array(
        select l.ctid
        from pglimit.permits l
        where l.ctid = any (v_tids)
            and l.pool || '' = _retire_lapsed.pool
            and l.expires_at > '-infinity'
            and l.expires_at <= clock_timestamp()
        for update skip locked));
end
$$;

comment on function pglimit._retire_lapsed(text) is
    'internal: releases the permits of a pool that have lapsed';

revoke all on function pglimit._retire_lapsed(text) from public;
