-- Removes the endpoint of a name; calls that give no limits of their own are refused from then on.
-- Writes: endpoints, and when there was one limit_versions and changes. Locks: the endpoint's row.
create or replace function pglimit.drop_endpoint(
    endpoint text,
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
as $$
#variable_conflict use_column
declare
    v_tenant text := coalesce(drop_endpoint.tenant, current_setting('pglimit.tenant', true), '');
    v_before jsonb;
begin
    if current_setting('transaction_read_only') <> 'off' then
        perform pglimit._check_transaction('drop_endpoint');
    end if;
    perform pglimit._check_names('endpoint', drop_endpoint.endpoint, null, null, v_tenant);
    delete from pglimit.endpoints x
    where x.tenant = v_tenant and x.endpoint = drop_endpoint.endpoint
    returning to_jsonb(x) into v_before;
    if not found then
        return false;
    end if;
    perform pglimit._record_change(
        'drop_endpoint', v_tenant, drop_endpoint.endpoint, v_before, null);
    return true;
end
$$;

comment on function pglimit.drop_endpoint(text, text) is
    'Removes the endpoint of this name. True when it was there. '
    'PGL01 invalid argument, PGL03 read-only or standby.';

revoke all on function pglimit.drop_endpoint(text, text) from public;
