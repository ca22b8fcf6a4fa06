-- Locks the counters of several keys, so that what is decided about them stays so to the end of the
-- transaction, and says where their rows are. `keys` are in ascending order, each once; `fresh`
-- those of them that may have no row, or whose window has ended or ends within a second: purge may
-- take such a row away. Writes: creation_locks (rows not met before). Locks, in order: creation
-- locks of the fresh keys by number, newest rows of counters by key, those of durable_counters by
-- key. Whoever locks one key alone goes the same way, so nobody waits in a circle.
-- A row that moved on to another turn during the wait is followed: it is one chain of versions.
create or replace function pglimit._lock_counts(
    keys text[],
    fresh text[],
    durable boolean,
    out tids tid[]
)
returns tid[]
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_key text;
begin
    if cardinality(fresh) > 0 then
        for v_key in
            select f.key
            from unnest(_lock_counts.fresh) f (key)
            order by hashtextextended(f.key, 0) & 16383
        loop
            perform pglimit._lock_creation(0, v_key);
        end loop;
    end if;
    select array_agg(x.tid order by k.place)
    into tids
    from unnest(_lock_counts.keys) with ordinality k (key, place)
    left join lateral (
        select c.ctid as tid
        from pglimit.counters c
        where c.key = k.key
        order by c.turn desc
        limit 1
        for update
    ) x on true;
    if durable then
        perform count(x.tid)
        from unnest(_lock_counts.keys) with ordinality k (key, place)
        left join lateral (
            select c.ctid as tid
            from pglimit.durable_counters c
            where c.key = k.key
            order by c.turn desc
            limit 1
            for update
        ) x on true;
    end if;
end
$$;

comment on function pglimit._lock_counts(text[], text[], boolean) is
    'internal: locks the counters of several keys in one order';

revoke all on function pglimit._lock_counts(text[], text[], boolean) from public;
