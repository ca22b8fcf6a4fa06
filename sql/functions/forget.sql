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
    v_turn bigint;
    v_used bigint;
    v_shadow_refused bigint;
    v_stamped boolean;
    v_reset timestamptz;
    v_now timestamptz;
begin
    if current_setting('transaction_isolation') <> 'read committed'
        or current_setting('transaction_read_only') <> 'off'
        or pg_current_xact_id_if_assigned() is not null
    then
        perform pglimit._check_transaction('forget');
    end if;
    perform pglimit._check_names('limit', forget.limit_name, 'subject', forget.subject, v_tenant);
    for v_attempt in 1..1000 loop
        select c.turn
        into v_turn
        from pglimit.counters c
        where c.key = v_key
        order by c.turn desc
        limit 1;
        if not found then
            return false;
        end if;
        select
            c.used, c.shadow_refused, c.reset_at is null,
            coalesce(c.reset_at, c.special_reset_at)
        into v_used, v_shadow_refused, v_stamped, v_reset
        from pglimit.counters c
        where c.key = v_key and c.turn = v_turn
        for update;
        continue when not found;
        v_now := clock_timestamp();
        if v_reset <= v_now or (v_used = 0 and v_shadow_refused = 0) then
            return false;
        end if;
        update pglimit.counters c
        set turn = case
                when c.changes < 64 then c.turn
                else greatest(c.turn + 1, (date_part('epoch', v_now) * 1000000)::bigint)
            end,
            changes = case when c.changes < 64 then c.changes + 1 else 0 end,
            used = 0,
            shadow_refused = 0,
            reset_at = case when not v_stamped then v_now end,
            special_reset_at = case when v_stamped then v_now end
        where c.key = v_key and c.turn = v_turn;
        return true;
    end loop;
    raise exception using
        errcode = '55P03',
        message = format('forget on limit %s lost every race', quote_literal(forget.limit_name)),
        detail = 'Other sessions changed the count between each look and its update, 1,000 times.',
        hint = 'Try again.';
end
$$;

comment on function pglimit.forget(text, text, text) is
    'Clears a subject''s count, so that its next hit begins a fresh window. '
    'True when an open count was cleared. '
    'PGL01 invalid argument, PGL03 wrong transaction, 55P03 after 1 s of waiting.';

revoke all on function pglimit.forget(text, text, text) from public;
