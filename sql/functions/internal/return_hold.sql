-- Gives back what a hold charged, which has lapsed and whose lock the caller has; false, and
-- nothing changed, where the counter is in use and would have to be waited for. Writes: counters or
-- durable_counters (one row). Locks: that row, without waiting: so purge, which calls this, is in
-- no circle with sessions that hold a counter and want another lock of its.
create or replace function pglimit._return_hold(hold pglimit.holds, durable boolean)
returns boolean
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_key text := format(
        e'%s\x1f%s\x1f%s', _return_hold.hold.tenant, _return_hold.hold.limit_name,
        _return_hold.hold.subject);
    v_durable boolean;
    v_locked boolean;
begin
    if _return_hold.hold.reset_at <= clock_timestamp() then
        return true;
    end if;
    select l.durable
    into v_durable
    from pglimit.limits l
    where l.tenant in (_return_hold.hold.tenant, '')
        and l.limit_name = _return_hold.hold.limit_name
    order by l.tenant desc
    limit 1;
    -- the limit is gone, or is counted elsewhere now: then that window is over
    if (not found and _return_hold.hold.max_hits is null)
        or coalesce(v_durable, false) <> _return_hold.durable
    then
        return true;
    end if;
    if _return_hold.durable then
        perform
        from pglimit.durable_counters c
        where c.key = v_key
        order by c.turn desc
        limit 1
        for update skip locked;
        v_locked := found;
        if not v_locked then
            perform
            from pglimit.durable_counters c
            where c.key = v_key
            order by c.turn desc
            limit 1;
        end if;
    else
        perform
        from pglimit.counters c
        where c.key = v_key
        order by c.turn desc
        limit 1
        for update skip locked;
        v_locked := found;
        if not v_locked then
            perform
            from pglimit.counters c
            where c.key = v_key
            order by c.turn desc
            limit 1;
        end if;
    end if;
    if not v_locked then
        -- in use, or gone, with what was charged
        return not found;
    end if;
    perform pglimit._hit_special(
        _return_hold.hold.limit_name, _return_hold.hold.subject, _return_hold.hold.max_hits,
        _return_hold.hold.per, -_return_hold.hold.charged, _return_hold.hold.algorithm,
        _return_hold.hold.burst, _return_hold.hold.tenant, forced => true,
        hold => _return_hold.hold);
    return true;
end
$$;

comment on function pglimit._return_hold(pglimit.holds, boolean) is
    'internal: gives back what a lapsed hold charged, unless its counter is in use';

revoke all on function pglimit._return_hold(pglimit.holds, boolean) from public;
