-- Refuses a subject at one limit, or with limit_name * at every limit of the tenant, for a time or
-- for ever. Replaces a block that is there, whoever made it and however long it was.
-- Writes: blocks, limit_versions, changes, counters (stamped). Locks: see _lock_block, then
-- _apply_block; to the end of the transaction, which should end at once.
create or replace function pglimit.block(
    limit_name text,
    subject text,
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
set intervalstyle = postgres
set timezone = 'UTC'
as $$
#variable_conflict use_column
declare
    v_tenant text := coalesce(block.tenant, current_setting('pglimit.tenant', true), '');
    v_until timestamptz;
    v_before jsonb;
    v_after jsonb;
begin
    if current_setting('transaction_isolation') <> 'read committed'
        or current_setting('transaction_read_only') <> 'off'
    then
        perform pglimit._check_transaction('block');
    end if;
    perform pglimit._check_names('limit', block.limit_name, 'subject', block.subject, v_tenant);
    if block.why is not null then
        perform pglimit._check_why(block.why);
    end if;
    if block.duration is not null then
        block.duration := pglimit._fixed_interval('duration', block.duration);
    end if;
    perform pglimit._lock_block(block.limit_name, block.subject, v_tenant);
    select to_jsonb(b)
    into v_before
    from pglimit.blocks b
    where b.tenant = v_tenant
        and b.limit_name = block.limit_name
        and b.subject = block.subject
    for update;
    v_until := clock_timestamp() + block.duration;
    perform pglimit._apply_block(
        block.limit_name, block.subject, v_tenant, v_until, v_until, 0, block.why, 'block');
    select to_jsonb(b)
    into v_after
    from pglimit.blocks b
    where b.tenant = v_tenant
        and b.limit_name = block.limit_name
        and b.subject = block.subject;
    perform pglimit._record_change(
        'block', v_tenant, block.limit_name, v_before - 'forget_at', v_after - 'forget_at',
        block.why);
    return v_until;
end
$$;

comment on function pglimit.block(text, text, interval, text, text) is
    'Refuses a subject at one limit, or with * at every limit, for a time or, without a duration, '
    'for ever. Returns until when; null is for ever. '
    'PGL01 invalid argument, PGL03 wrong transaction, 55P03 after 1 s of waiting.';

revoke all on function pglimit.block(text, text, interval, text, text) from public;
