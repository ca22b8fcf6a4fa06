-- Clears a subject's count in place: the newest row stays, with an ended window, since deleting it
-- would bring the dead rows of a hot key back into the scan.
-- Writes: counters (one row). Locks: that row.
create or replace function pglimit.forget(
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
as $$
#variable_conflict use_column
declare
    v_tenant text := coalesce(forget.tenant, current_setting('pglimit.tenant', true), '');
    v_key text := v_tenant || e'\x1f' || forget.limit_name || e'\x1f' || forget.subject;
    v_row pglimit.counter_state;
    v_now timestamptz;
    v_durable boolean;
    v_forgotten boolean := false;
begin
    if current_setting('transaction_isolation') <> 'read committed'
        or current_setting('transaction_read_only') <> 'off'
        or pg_current_xact_id_if_assigned() is not null
    then
        perform pglimit._check_transaction('forget');
    end if;
    perform pglimit._check_names('limit', forget.limit_name, 'subject', forget.subject, v_tenant);
    -- where it is counted now, and where it was before its limit became durable, or no more
    foreach v_durable in array array[false, true] loop
        for v_attempt in 1..1000 loop
            if v_durable then
                select c.* into v_row
                from pglimit.durable_counters c
                where c.key = v_key
                order by c.turn desc
                limit 1;
                exit when not found;
                select c.* into v_row
                from pglimit.durable_counters c
                where c.key = v_key and c.turn = v_row.turn
                for update;
            else
                select c.* into v_row
                from pglimit.counters c
                where c.key = v_key
                order by c.turn desc
                limit 1;
                exit when not found;
                select c.* into v_row
                from pglimit.counters c
                where c.key = v_key and c.turn = v_row.turn
                for update;
            end if;
            if not found then
                if v_attempt < 1000 then
                    continue;
                end if;
                raise exception using
                    errcode = '55P03',
                    message = format('forget on limit %s lost every race',
                        quote_literal(forget.limit_name)),
                    detail = 'Other sessions changed the count between each look and its update, '
                        || '1,000 times.',
                    hint = 'Try again.';
            end if;
            v_now := clock_timestamp();
            exit when coalesce(v_row.reset_at, v_row.special_reset_at) <= v_now
                or (
                    v_row.algorithm is null
                    and v_row.used = 0
                    and v_row.shadow_refused = 0
                );
            v_row.used := 0;
            v_row.shadow_refused := 0;
            if v_row.reset_at is null then
                v_row.special_reset_at := v_now;
            else
                v_row.reset_at := v_now;
            end if;
            perform pglimit._keep_count(v_key, v_row, v_now, v_durable);
            v_forgotten := true;
            exit;
        end loop;
    end loop;
    return v_forgotten;
end
$$;

comment on function pglimit.forget(text, text, text) is
    'Clears a subject''s count, so that its next hit begins a fresh window. '
    'True when an open count was cleared. '
    'PGL01 invalid argument, PGL03 wrong transaction, 55P03 after 1 s of waiting.';

revoke all on function pglimit.forget(text, text, text) from public;
