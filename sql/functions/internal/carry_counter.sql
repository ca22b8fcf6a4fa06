-- Carries a subject's counter over the changes of its limit that are still to be carried, before
-- its override becomes another: whether it was scaled depends on the override that held at the
-- change. One that is still to move, as its limit has become durable, is left to its next hit.
-- Writes: counters or durable_counters (the newest row of the key), where any change is still to be
-- carried. Locks: that row, to the end of the transaction; the caller has the override's.
create or replace function pglimit._carry_counter(limit_name text, subject text, tenant text)
returns void
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_key text := format(
        e'%s\x1f%s\x1f%s', _carry_counter.tenant, _carry_counter.limit_name,
        _carry_counter.subject);
    v_rule pglimit.limits;
    v_reset timestamptz;
    v_since timestamptz;
begin
    select l.* into v_rule
    from pglimit.limits l
    where l.tenant in (_carry_counter.tenant, '') and l.limit_name = _carry_counter.limit_name
    order by l.tenant desc
    limit 1;
    if v_rule.carries_until is null then
        return;
    end if;
    if v_rule.durable then
        select coalesce(c.reset_at, c.special_reset_at)
        into v_reset
        from pglimit.durable_counters c
        where c.key = v_key
        order by c.turn desc
        limit 1;
    else
        select coalesce(c.reset_at, c.special_reset_at)
        into v_reset
        from pglimit.counters c
        where c.key = v_key
        order by c.turn desc
        limit 1;
    end if;
    if v_reset > clock_timestamp() then
        perform pglimit._hit_special(
            _carry_counter.limit_name, _carry_counter.subject, null, null, 0, null, null,
            _carry_counter.tenant, forced => true);
        -- also one that was not scaled has been looked at
        v_since := greatest(clock_timestamp(), (
            select max(c.changed_at)
            from pglimit.limit_carries c
            where c.tenant = v_rule.tenant and c.limit_name = v_rule.limit_name));
        if v_rule.durable then
            update pglimit.durable_counters c
            set open_since = v_since
            where c.key = v_key
                and c.turn = (
                    select max(n.turn) from pglimit.durable_counters n where n.key = v_key);
        else
            update pglimit.counters c
            set open_since = v_since
            where c.key = v_key
                and c.turn = (select max(n.turn) from pglimit.counters n where n.key = v_key);
        end if;
    end if;
end
$$;

comment on function pglimit._carry_counter(text, text, text) is
    'internal: carries a subject''s counter over changes of its limit, ahead of its override';

revoke all on function pglimit._carry_counter(text, text, text) from public;
