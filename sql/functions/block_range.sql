-- Refuses all subjects that are addresses in a network, at one limit or with limit_name * at every
-- limit of the tenant, for a time or for ever. Replaces a block of that very network.
-- Writes: blocks (the row that makes hits look for ranges), block_ranges, limit_versions, changes,
-- counters (stamped). Locks: the table of creation locks as a block at every limit does (see
-- _lock_block), for who may come from the network cannot be listed; that row; the range; the
-- network's newest counters in the order of their keys. To the end of the transaction, which should
-- end at once.
-- Safe under concurrency as a block is: who makes a counter has it committed before the lock is
-- granted, and it is stamped, or waits and then sees the range.
create or replace function pglimit.block_range(
    limit_name text,
    network inet,
    duration interval default null,
    why text default null,
    tenant text default null
)
returns timestamptz
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
set jit = off
set intervalstyle = postgres
set timezone = 'UTC'
as $$
#variable_conflict use_column
declare
    v_tenant text := coalesce(block_range.tenant, current_setting('pglimit.tenant', true), '');
    v_network cidr := pglimit._network(block_range.network);
    v_until timestamptz;
    v_before jsonb;
    v_after jsonb;
begin
    if current_setting('transaction_isolation') <> 'read committed'
        or current_setting('transaction_read_only') <> 'off'
    then
        perform pglimit._check_transaction('block_range');
    end if;
    perform pglimit._check_names('limit', block_range.limit_name, null, null, v_tenant);
    if block_range.why is not null then
        perform pglimit._check_why(block_range.why);
    end if;
    if block_range.duration is not null then
        block_range.duration := pglimit._fixed_interval('duration', block_range.duration);
    end if;
    perform pglimit._lock_block('*', null, v_tenant);
    v_until := clock_timestamp() + block_range.duration;
    -- what makes hits look for ranges: it holds as long as any of them
    insert into pglimit.blocks as b (
        tenant, limit_name, subject, blocked_until, forget_at, updated_at, updated_by)
    values (
        v_tenant, block_range.limit_name, '', v_until, v_until, clock_timestamp(), session_user)
    on conflict on constraint blocks_pkey do update
    set blocked_until = case
            when b.blocked_until is not null and excluded.blocked_until is not null
                then greatest(b.blocked_until, excluded.blocked_until)
        end,
        forget_at = case
            when b.blocked_until is not null and excluded.blocked_until is not null
                then greatest(b.blocked_until, excluded.blocked_until)
        end,
        updated_at = excluded.updated_at,
        updated_by = excluded.updated_by;
    -- who lifts one waits for that row, so this is there until the end
    select to_jsonb(r)
    into v_before
    from pglimit.block_ranges r
    where r.tenant = v_tenant
        and r.limit_name = block_range.limit_name
        and r.network = v_network;
    insert into pglimit.block_ranges as r (
        tenant, limit_name, network, blocked_until, why, updated_at, updated_by)
    values (
        v_tenant, block_range.limit_name, v_network, v_until, block_range.why, clock_timestamp(),
        session_user)
    on conflict on constraint block_ranges_pkey do update
    set blocked_until = excluded.blocked_until,
        why = excluded.why,
        updated_at = excluded.updated_at,
        updated_by = excluded.updated_by
    returning to_jsonb(r) into v_after;
    if v_until is not null and v_before ->> 'blocked_until' is null and v_before is not null then
        -- it was for ever, and so was what makes hits look; perhaps it need not be any more
        update pglimit.blocks b
        set blocked_until = x.until, forget_at = x.until
        from (
            select case when count(*) = count(r.blocked_until) then max(r.blocked_until) end
            from pglimit.block_ranges r
            where r.tenant = v_tenant and r.limit_name = block_range.limit_name
        ) x (until)
        where b.tenant = v_tenant and b.limit_name = block_range.limit_name and b.subject = '';
    end if;
    perform pglimit._stamp_network(block_range.limit_name, v_network, v_tenant);
    perform pglimit._record_change(
        'block_range', v_tenant, block_range.limit_name, v_before, v_after, block_range.why);
    return v_until;
end
$$;

comment on function pglimit.block_range(text, inet, interval, text, text) is
    'Refuses all addresses of a network at one limit, or with * at every limit, for a time or, '
    'without a duration, for ever. Returns until when; null is for ever. '
    'PGL01 invalid argument, PGL03 wrong transaction, 55P03 after 1 s of waiting.';

revoke all on function pglimit.block_range(text, inet, interval, text, text) from public;
