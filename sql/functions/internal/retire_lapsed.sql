-- Marks the rows of a pool that have lapsed and that nobody has locked (row_count 0): no renewal on
-- its way holds them, and one that comes later finds them lapsed, or marked. Called while a pool
-- has lanes above the cap, under its creation lock. Writes: permits. Locks: those rows, without
-- waiting.
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
        select p.ctid, p.expires_at, p.row_count
        from pglimit.permits p
        where p.pool = _retire_lapsed.pool and p.lane = g.lane
        order by p.turn desc
        limit 1
    ) x
    where x.row_count > 0 and x.expires_at > '-infinity' and x.expires_at <= clock_timestamp();
    if v_tids is null then
        return;
    end if;
    update pglimit.permits p
    set row_count = 0
    where p.ctid = any (array(
        select l.ctid
        from pglimit.permits l
        where l.ctid = any (v_tids)
            and l.pool || '' = _retire_lapsed.pool
            and l.expires_at <= clock_timestamp()
        for update skip locked));
end
$$;

comment on function pglimit._retire_lapsed(text) is
    'internal: marks the rows of a pool that have lapsed for good';

revoke all on function pglimit._retire_lapsed(text) from public;
