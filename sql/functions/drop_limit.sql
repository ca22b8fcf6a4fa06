-- Removes the limit of a name; calls that give no limits of their own are refused from then on.
-- Overrides of its subjects stay, and so do changes that counts are still to be carried over: a
-- limit that is made again under this name goes by them.
-- Writes: limits, and when there was one limit_versions and changes. Locks: the limit's row.
create or replace function pglimit.drop_limit(
    limit_name text,
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
    v_tenant text := coalesce(drop_limit.tenant, current_setting('pglimit.tenant', true), '');
    v_before jsonb;
begin
    if current_setting('transaction_read_only') <> 'off' then
        perform pglimit._check_transaction('drop_limit');
    end if;
    perform pglimit._check_names('limit', drop_limit.limit_name, null, null, v_tenant);
    delete from pglimit.limits x
    where x.tenant = v_tenant and x.limit_name = drop_limit.limit_name
    returning to_jsonb(x) into v_before;
    if not found then
        return false;
    end if;
    perform pglimit._record_change(
        'drop_limit', v_tenant, drop_limit.limit_name, v_before, null);
    return true;
end
$$;

comment on function pglimit.drop_limit(text, text) is
    'Removes the limit of this name. True when it was there. '
    'PGL01 invalid argument, PGL03 read-only or standby.';

revoke all on function pglimit.drop_limit(text, text) from public;
