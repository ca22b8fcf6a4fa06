-- Lifts the block of a network, of this very one: wider and narrower ones stay. The stamps on the
-- counters of its addresses stay until the next change of each (see counters), which costs a look.
-- Writes: block_ranges, and when there was one blocks (the row that makes hits look for ranges),
-- limit_versions and changes. Locks: that row, the range.
create or replace function pglimit.unblock_range(
    limit_name text,
    network inet,
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
    v_tenant text := coalesce(unblock_range.tenant, current_setting('pglimit.tenant', true), '');
    v_network cidr := pglimit._network(unblock_range.network);
    v_before jsonb;
    v_left bigint;
    v_until timestamptz;
begin
    if current_setting('transaction_read_only') <> 'off' then
        perform pglimit._check_transaction('unblock_range');
    end if;
    perform pglimit._check_names('limit', unblock_range.limit_name, null, null, v_tenant);
    perform
    from pglimit.blocks b
    where b.tenant = v_tenant and b.limit_name = unblock_range.limit_name and b.subject = ''
    for update;
    delete from pglimit.block_ranges r
    where r.tenant = v_tenant
        and r.limit_name = unblock_range.limit_name
        and r.network = v_network
    returning to_jsonb(r) into v_before;
    if not found then
        return false;
    end if;
    select count(*), case when count(*) = count(r.blocked_until) then max(r.blocked_until) end
    into v_left, v_until
    from pglimit.block_ranges r
    where r.tenant = v_tenant and r.limit_name = unblock_range.limit_name;
    if v_left = 0 then
        delete from pglimit.blocks b
        where b.tenant = v_tenant and b.limit_name = unblock_range.limit_name and b.subject = '';
    else
        update pglimit.blocks b
        set blocked_until = v_until, forget_at = v_until
        where b.tenant = v_tenant and b.limit_name = unblock_range.limit_name and b.subject = '';
    end if;
    perform pglimit._record_change(
        'unblock_range', v_tenant, unblock_range.limit_name, v_before, null);
    return coalesce((v_before ->> 'blocked_until')::timestamptz > clock_timestamp(), true);
end
$$;

comment on function pglimit.unblock_range(text, inet, text) is
    'Lifts the block of a network; wider and narrower ones stay. True when it was blocked. '
    'PGL01 invalid argument, PGL03 read-only or standby.';

revoke all on function pglimit.unblock_range(text, inet, text) from public;
