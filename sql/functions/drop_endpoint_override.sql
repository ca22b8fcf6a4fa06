-- Takes a holder's own bounds away; the next claim goes by the endpoint's row again. Writes:
-- endpoint_overrides, endpoints (the mark, with the last one), limit_versions, changes. Locks: the
-- creation lock of the endpoint's name, then the rows.
create or replace function pglimit.drop_endpoint_override(
    endpoint text,
    holder text,
    tenant text default null
)
returns boolean
language plpgsql
volatile
parallel unsafe
called on null input
security definer
set search_path = pg_catalog, pg_temp
set row_security = on
set lock_timeout = '1s'
set intervalstyle = postgres
set timezone = 'UTC'
as $$
#variable_conflict use_column
declare
    v_tenant text := coalesce(
        drop_endpoint_override.tenant, current_setting('pglimit.tenant', true), '');
    v_before jsonb;
begin
    if current_setting('transaction_read_only') <> 'off' then
        perform pglimit._check_transaction('drop_endpoint_override');
    end if;
    perform pglimit._check_names(
        'endpoint', drop_endpoint_override.endpoint, 'holder', drop_endpoint_override.holder,
        v_tenant);
    perform pglimit._lock_creation(5, drop_endpoint_override.endpoint);
    delete from pglimit.endpoint_overrides o
    where o.tenant = v_tenant
        and o.endpoint = drop_endpoint_override.endpoint
        and o.holder = drop_endpoint_override.holder
    returning to_jsonb(o) into v_before;
    if not found then
        return false;
    end if;
    update pglimit.endpoints e
    set overridden = false
    where e.endpoint = drop_endpoint_override.endpoint
        and e.overridden
        and not exists (
            select
            from pglimit.endpoint_overrides o
            where o.endpoint = e.endpoint and (e.tenant = '' or o.tenant = e.tenant));
    perform pglimit._record_change(
        'drop_endpoint_override', v_tenant, drop_endpoint_override.endpoint, v_before, null);
    return true;
end
$$;

comment on function pglimit.drop_endpoint_override(text, text, text) is
    'Takes a holder''s own bounds away. True when there were some. '
    'PGL01 invalid argument, PGL03 read-only or standby.';

revoke all on function pglimit.drop_endpoint_override(text, text, text) from public;
