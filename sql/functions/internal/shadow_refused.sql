-- How many hits of the open windows of a limit in mode shadow would have been refused. The row of
-- tenant '' holds for all tenants without a row of their own: so the tenants are found one after
-- the other, each by a descent of the index to the first key behind the one before. Writes and
-- locks nothing.
create or replace function pglimit._shadow_refused(tenant text, limit_name text)
returns bigint
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_tenant text := _shadow_refused.tenant;
    v_prefix text;
    v_sum bigint;
    v_total bigint := 0;
begin
    loop
        if v_tenant = _shadow_refused.tenant
            or not exists (
                select
                from pglimit.limits l
                where l.tenant = v_tenant and l.limit_name = _shadow_refused.limit_name
            )
        then
            v_prefix := v_tenant || e'\x1f' || _shadow_refused.limit_name;
            select coalesce(sum(s.shadow_refused), 0)
            into v_sum
            from (
                select c.shadow_refused
                from pglimit.counters c
                where c.key > v_prefix || e'\x1f'
                    and c.key < v_prefix || e'\x20'
                    and coalesce(c.reset_at, c.special_reset_at) > clock_timestamp()
                union all
                select c.shadow_refused
                from pglimit.durable_counters c
                where c.key > v_prefix || e'\x1f'
                    and c.key < v_prefix || e'\x20'
                    and coalesce(c.reset_at, c.special_reset_at) > clock_timestamp()
            ) s;
            v_total := v_total + v_sum;
        end if;
        exit when _shadow_refused.tenant <> '';
        select min(n.tenant)
        into v_tenant
        from (
            (
                select split_part(c.key, e'\x1f', 1) as tenant
                from pglimit.counters c
                where c.key >= v_tenant || e'\x20'
                order by c.key
                limit 1
            )
            union all
            (
                select split_part(c.key, e'\x1f', 1) as tenant
                from pglimit.durable_counters c
                where c.key >= v_tenant || e'\x20'
                order by c.key
                limit 1
            )
        ) n;
        exit when v_tenant is null;
    end loop;
    return v_total;
end
$$;

comment on function pglimit._shadow_refused(text, text) is
    'internal: the hits of open windows that a limit in mode shadow would have refused';

revoke all on function pglimit._shadow_refused(text, text) from public;
