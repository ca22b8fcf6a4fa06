-- Removes the override of one subject: its next hit goes by the limit again. The stamp on its
-- counter stays until the next change of it (see set_limit_override), which costs one look.
-- Writes: limit_overrides, and when there was one limit_versions and changes; a counter that is
-- still to be carried over a change of its limit. Locks: the override, then that counter.
create or replace function pglimit.drop_limit_override(
    limit_name text,
    subject text,
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
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set intervalstyle = postgres
set timezone = 'UTC'
as $$
#variable_conflict use_column
declare
    v_tenant text := coalesce(
        drop_limit_override.tenant, current_setting('pglimit.tenant', true), '');
    v_before jsonb;
begin
    if current_setting('transaction_read_only') <> 'off' then
        perform pglimit._check_transaction('drop_limit_override');
    end if;
    perform pglimit._check_names(
        'limit', drop_limit_override.limit_name, 'subject', drop_limit_override.subject, v_tenant);
    perform
    from pglimit.limit_overrides o
    where o.tenant = v_tenant
        and o.limit_name = drop_limit_override.limit_name
        and o.subject = drop_limit_override.subject
    for update;
    if found then
        perform pglimit._carry_counter(
            drop_limit_override.limit_name, drop_limit_override.subject, v_tenant);
    end if;
    delete from pglimit.limit_overrides o
    where o.tenant = v_tenant
        and o.limit_name = drop_limit_override.limit_name
        and o.subject = drop_limit_override.subject
    returning to_jsonb(o) into v_before;
    if not found then
        return false;
    end if;
    perform pglimit._record_change(
        'drop_limit_override', v_tenant, drop_limit_override.limit_name, v_before, null);
    return true;
end
$$;

comment on function pglimit.drop_limit_override(text, text, text) is
    'Removes the override of one subject. True when it was there. '
    'PGL01 invalid argument, PGL03 read-only or standby.';

revoke all on function pglimit.drop_limit_override(text, text, text) from public;
