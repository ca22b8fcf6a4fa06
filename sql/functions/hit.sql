-- Records a hit and decides it, in fixed windows that begin with a subject's first hit.
-- Writes: counters (one row). Locks: that row; for a key without a row, first the key's creation
-- lock. One key a call, so no lock order is needed.
-- Safe under concurrency because every change goes through the newest row: it is made by an update
-- that repeats its conditions and so sees 0 rows when somebody else moved on; then read again.
-- A plain read comes first, so that a refusal writes, locks and draws nothing.
-- The update goes by ctid, which saves an index descent; the key and turn beside it make sure that
-- the row is still the one that was read. Its instant is taken anew after a wait for the lock.
-- Does not wait for purge: a count whose window has ended is nothing.
create or replace function pglimit.hit(
    limit_name text,
    subject text,
    max_hits bigint default null,
    per interval default null,
    cost bigint default 1,
    algorithm text default null,
    burst bigint default null,
    tenant text default null
)
returns pglimit.hit_row
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
    v_tenant text := coalesce(hit.tenant, current_setting('pglimit.tenant', true), '');
    v_key text := v_tenant || e'\x1f' || hit.limit_name || e'\x1f' || hit.subject;
    v_max bigint := hit.max_hits;
    v_per interval := hit.per;
    v_on_outage text;
    v_version bigint;
    v_now timestamptz;
    v_ctid tid;
    v_turn bigint;
    v_changes integer;
    v_used bigint;
    v_start timestamptz;
    v_reset timestamptz;
    v_checked boolean := false;
    v_lost boolean := false;
begin
    if current_setting('transaction_isolation') <> 'read committed'
        or current_setting('transaction_read_only') <> 'off'
        or pg_current_xact_id_if_assigned() is not null
    then
        perform pglimit._check_transaction('hit');
    end if;

    if v_max is null or v_per is null then
        select l.max_hits, l.per, l.on_outage, l.limit_version
        into v_max, v_per, v_on_outage, v_version
        from pglimit.limits l
        where l.tenant = v_tenant and l.limit_name = hit.limit_name;
        if not found and v_tenant <> '' then
            select l.max_hits, l.per, l.on_outage, l.limit_version
            into v_max, v_per, v_on_outage, v_version
            from pglimit.limits l
            where l.tenant = '' and l.limit_name = hit.limit_name;
        end if;
        if not found then
            perform pglimit._check_hit(
                hit.limit_name, hit.subject, hit.max_hits, hit.per, hit.cost,
                hit.algorithm, hit.burst, v_tenant);
            perform pglimit._unknown_limit(hit.limit_name, hit.max_hits);
        end if;
        v_max := coalesce(hit.max_hits, v_max);
        v_per := coalesce(hit.per, v_per);
    end if;

    -- one expression for the usual case; a separator inside a name would meet another key; the
    -- months of an interval are the last 4 bytes of its binary form, the cheapest way to see none
    if (
        hit.cost > 0
        and v_max >= 0
        and v_per > '0 s'
        and v_per <= '36525 days'
        and substr(interval_send(v_per), 13) = '\x00000000'
        and coalesce(hit.algorithm, 'fixed_window') = 'fixed_window'
        and hit.burst is null
        and strpos(v_tenant, e'\x1f') = 0
        and strpos(hit.limit_name, e'\x1f') = 0
    ) is not true then
        perform pglimit._check_hit(
            hit.limit_name, hit.subject, v_max, v_per, hit.cost,
            hit.algorithm, hit.burst, v_tenant);
        return pglimit._look(
            v_tenant, hit.limit_name, hit.subject, v_max, 1, v_on_outage, v_version);
    end if;

    for v_attempt in 1..1000 loop
        select c.ctid, c.turn, c.changes, c.used, c.reset_at
        into v_ctid, v_turn, v_changes, v_used, v_reset
        from pglimit.counters c
        where c.key = v_key
        order by c.turn desc
        limit 1;
        v_now := clock_timestamp();

        if v_turn is null then
            if not v_checked then
                perform pglimit._check_hit(
                    hit.limit_name, hit.subject, v_max, v_per, hit.cost,
                    hit.algorithm, hit.burst, v_tenant);
                v_checked := true;
                if hit.cost <= v_max then
                    -- two creators would both succeed, with different turns: one at a time, then
                    -- look again
                    perform pglimit._lock_creation(0, v_key);
                    continue;
                end if;
                return row(
                    false, 'never', v_max, v_max, null, null,
                    v_on_outage, v_version)::pglimit.hit_row;
            end if;
            v_per := pglimit._fixed_interval('per', v_per);
            insert into pglimit.counters (key, turn, changes, used, window_start, reset_at)
            values (
                v_key, (date_part('epoch', v_now) * 1000000)::bigint, 0, hit.cost,
                v_now, v_now + v_per);
            return row(
                true, 'allowed', v_max, v_max - hit.cost, null, v_now + v_per,
                v_on_outage, v_version)::pglimit.hit_row;
        end if;

        if v_reset > v_now then
            if hit.cost > v_max - v_used then
                return row(
                    false,
                    case when hit.cost > v_max then 'never' else 'limit' end,
                    v_max,
                    greatest(v_max - v_used, 0),
                    case when hit.cost <= v_max then v_reset - v_now end,
                    v_reset,
                    v_on_outage,
                    v_version)::pglimit.hit_row;
            end if;
            if v_changes < 64 and not v_lost then
                update pglimit.counters c
                set used = c.used + hit.cost, changes = c.changes + 1
                where c.ctid = v_ctid
                    and c.key = v_key
                    and c.turn = v_turn
                    and c.used <= v_max - hit.cost
                    and c.reset_at > clock_timestamp()
                returning c.used, c.reset_at into v_used, v_reset;
                if found then
                    return row(
                        true, 'allowed', v_max, v_max - v_used, null, v_reset,
                        v_on_outage, v_version)::pglimit.hit_row;
                end if;
                v_lost := true;
                continue;
            end if;
        elsif hit.cost > v_max then
            return row(
                false, 'never', v_max, v_max, null, null, v_on_outage, v_version)::pglimit.hit_row;
        end if;

        -- the window has ended, the turn is used up or a race was lost: take the row's lock, then
        -- decide by what it holds and by a fresh clock
        select c.changes, c.used, c.window_start, c.reset_at
        into v_changes, v_used, v_start, v_reset
        from pglimit.counters c
        where c.key = v_key and c.turn = v_turn
        for update;
        continue when not found;
        v_now := clock_timestamp();
        if v_reset <= v_now then
            v_used := 0;
            v_start := v_now;
            v_reset := v_now + pglimit._fixed_interval('per', v_per);
        end if;
        continue when hit.cost > v_max - v_used;
        update pglimit.counters c
        set turn = case
                when c.changes < 64 then c.turn
                else greatest(c.turn + 1, (date_part('epoch', v_now) * 1000000)::bigint)
            end,
            changes = case when c.changes < 64 then c.changes + 1 else 0 end,
            used = v_used + hit.cost,
            window_start = v_start,
            reset_at = v_reset
        where c.key = v_key and c.turn = v_turn;
        return row(
            true, 'allowed', v_max, v_max - v_used - hit.cost, null, v_reset,
            v_on_outage, v_version)::pglimit.hit_row;
    end loop;

    raise exception using
        errcode = '55P03',
        message = format('hit on limit %s lost every race', quote_literal(hit.limit_name)),
        detail = 'Other sessions changed the count between each look and its update, 1,000 times.',
        hint = 'Try again; if it stays, look for a client that hits one subject without pause.';
end
$$;

comment on function pglimit.hit(text, text, bigint, interval, bigint, text, bigint, text) is
    'Records a hit of a subject and says whether the limit allows it. '
    'One row; a refusal is a row with allowed = false and writes nothing. '
    'PGL01 invalid argument, PGL02 unknown limit, PGL03 wrong transaction, '
    '55P03 after 1 s of waiting.';

revoke all on function pglimit.hit(text, text, bigint, interval, bigint, text, bigint, text)
    from public;
