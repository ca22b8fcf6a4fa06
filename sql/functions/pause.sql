-- Refuses a subject until an instant, for the services that learn it: an upstream says Retry-After,
-- and all who use it should wait. Never shortens a block that is there, so that of several who call
-- the longest pause holds, and is no matter of the history. Writes: when it lengthens blocks and
-- counters (stamped). Locks: then see _lock_block, _apply_block.
create or replace function pglimit.pause(
    limit_name text,
    subject text,
    duration interval default null,
    until timestamptz default null,
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
as $$
#variable_conflict use_column
declare
    v_tenant text := coalesce(pause.tenant, current_setting('pglimit.tenant', true), '');
    v_until timestamptz := pause.until;
    v_row pglimit.blocks;
begin
    if current_setting('transaction_isolation') <> 'read committed'
        or current_setting('transaction_read_only') <> 'off'
        or pg_current_xact_id_if_assigned() is not null
    then
        perform pglimit._check_transaction('pause');
    end if;
    perform pglimit._check_names('limit', pause.limit_name, 'subject', pause.subject, v_tenant);
    if num_nonnulls(pause.until, pause.duration) <> 1
        or pause.until > clock_timestamp() + interval '36525 days'
    then
        raise exception using
            errcode = 'PGL01',
            message = format('until of %s and duration of %s say no end',
                coalesce(pause.until::text, 'null'), coalesce(pause.duration::text, 'null')),
            detail = 'A pause ends at one instant, or after one time.',
            hint = 'Pass one of them, such as duration => ''30 s''; for ever is pglimit.block.';
    end if;
    if pause.why is not null then
        perform pglimit._check_why(pause.why);
    end if;
    if v_until is null then
        v_until := clock_timestamp() + pglimit._fixed_interval('duration', pause.duration);
    end if;
    for v_attempt in 1..2 loop
        select b.*
        into v_row
        from pglimit.blocks b
        where b.tenant = v_tenant
            and b.limit_name = pause.limit_name
            and b.subject = pause.subject;
        if found and (v_row.blocked_until is null or v_row.blocked_until >= v_until) then
            return v_row.blocked_until;
        elsif v_until <= clock_timestamp() then
            return v_until;
        end if;
        if v_attempt = 1 then
            perform pglimit._lock_block(pause.limit_name, pause.subject, v_tenant);
        end if;
    end loop;
    -- strikes stay, and stay as long as they would have
    perform pglimit._apply_block(
        pause.limit_name, pause.subject, v_tenant, v_until, greatest(v_until, v_row.forget_at),
        coalesce(v_row.strikes, 0), coalesce(pause.why, v_row.why), 'pause');
    return v_until;
end
$$;

comment on function pglimit.pause(text, text, interval, timestamptz, text, text) is
    'Refuses a subject at one limit, or with * at every limit, until an instant or for a time. '
    'Never shortens a block. Returns until when it is blocked; null is for ever. '
    'PGL01 invalid argument, PGL03 wrong transaction, 55P03 after 1 s of waiting.';

revoke all on function pglimit.pause(text, text, interval, timestamptz, text, text) from public;
