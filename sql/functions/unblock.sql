-- Lifts the block of a subject, and forgets its strikes: the next hit goes by the limit again. The
-- stamps on its counters stay until the next change of each (see counters), which costs one look.
-- Writes: blocks, and when there was one limit_versions and changes. Locks: the block.
create or replace function pglimit.unblock(
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
set intervalstyle = postgres
set timezone = 'UTC'
as $$
#variable_conflict use_column
declare
    v_tenant text := coalesce(unblock.tenant, current_setting('pglimit.tenant', true), '');
    v_before jsonb;
begin
    if current_setting('transaction_read_only') <> 'off' then
        perform pglimit._check_transaction('unblock');
    end if;
    perform pglimit._check_names('limit', unblock.limit_name, 'subject', unblock.subject, v_tenant);
    delete from pglimit.blocks b
    where b.tenant = v_tenant
        and b.limit_name = unblock.limit_name
        and b.subject = unblock.subject
    returning to_jsonb(b) into v_before;
    if not found then
        return false;
    end if;
    perform pglimit._record_change(
        'unblock', v_tenant, unblock.limit_name, v_before - 'forget_at', null);
    return coalesce((v_before ->> 'blocked_until')::timestamptz > clock_timestamp(), true);
end
$$;

comment on function pglimit.unblock(text, text, text) is
    'Lifts the block of a subject and forgets its strikes. True when it was blocked. '
    'PGL01 invalid argument, PGL03 read-only or standby.';

revoke all on function pglimit.unblock(text, text, text) from public;
