-- What the queues and the pools beyond the caps of an endpoint hold: tickets that wait, and claims
-- that mode shadow granted and mode enforce would have refused (null when there is no such pool),
-- since purge or a crash removed the pools. A row of tenant '' speaks for every tenant without a
-- row of his own; they are found by skipping from one tenant's pools to the next's. Writes and
-- locks nothing.
create or replace function pglimit._endpoint_pools(
    tenant text,
    endpoint text,
    out waiting bigint,
    out shadow_refused bigint
)
returns record
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_tenant text := _endpoint_pools.tenant;
    v_waiting bigint;
    v_refused bigint;
begin
    -- a standby has none, and cannot read them
    if pg_is_in_recovery() then
        return;
    end if;
    waiting := 0;
    loop
        if v_tenant = _endpoint_pools.tenant or not exists (
            select
            from pglimit.endpoints e
            where e.tenant = v_tenant and e.endpoint = _endpoint_pools.endpoint)
        then
            select count(*) into v_waiting
            from pglimit._current_rows(v_tenant || e'\x1f\x1fq' || _endpoint_pools.endpoint) s
            where s.expires_at > clock_timestamp();
            waiting := waiting + v_waiting;
            select sum(p.shadow_refused) into v_refused
            from pglimit._current_rows(v_tenant || e'\x1f\x1fb' || _endpoint_pools.endpoint) p;
            shadow_refused := coalesce(shadow_refused + v_refused, v_refused, shadow_refused);
        end if;
        exit when _endpoint_pools.tenant <> '';
        -- the separator is a control character, which sorts before all that names hold
        select split_part(p.pool, e'\x1f', 1) into v_tenant
        from pglimit.permits p
        where p.pool > v_tenant || e'\x20'
        order by p.pool
        limit 1;
        exit when not found;
    end loop;
end
$$;

comment on function pglimit._endpoint_pools(text, text) is
    'internal: tickets that wait at an endpoint and claims granted beyond its caps';

revoke all on function pglimit._endpoint_pools(text, text) from public;
