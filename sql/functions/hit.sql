-- Records a hit and decides it, in fixed windows that begin with a subject's first hit.
-- Writes: counters (one row). Locks: that row; for a key without a row, first the key's creation
-- lock. One key a call, so no lock order is needed.
-- Safe under concurrency because every change goes through the newest row: it is made by an update
-- that repeats its conditions and so sees 0 rows when somebody else moved on; then read again.
-- A plain read comes first, so that a refusal writes, locks and draws nothing.
-- The usual hit and the usual refusal are straight-line code, all else is a loop below it. In every
-- transaction PL/pgSQL makes each expression ready anew, about 2,600 instructions an operator or
-- function: so there are few, and none twice.
-- The update goes by ctid, which saves an index descent; the key beside it makes sure that the row
-- is still of this subject, and of one key no more than one row is visible. Where somebody else
-- updated the row meanwhile it finds nothing, for on recent minor releases a row is looked for at
-- its ctid alone; then the loop below decides. Who waited for somebody who gave up counts in the
-- window that was open before the wait: nobody changed it since.
-- Does not wait for purge: a count whose window has ended is nothing.
-- Windows of the calendar that are open go the same way; sliding windows and buckets have straight
-- ways of their own, which the numbers of a limit that the call brings are made for (_hit_given).
-- What is not plain goes to _hit_special: a limit in another mode, or durable, or whose counts are
-- to be carried over a change; an algorithm of a call that leaves the rest to the row; a subject
-- with an override or a block, as its counter is stamped with a reset_at of null and so falls
-- through both straight ways; and, once any limit has had another mode, of a call with its own
-- limit a refusal and a window that begins.
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
    v_key text := format(
        e'%s\x1f%s\x1f%s',
        coalesce(hit.tenant, current_setting('pglimit.tenant', true), ''),
        hit.limit_name,
        hit.subject);
    v_max bigint;
    v_per interval;
    v_on_outage text;
    v_version bigint;
    v_plain boolean;
    v_us bigint;
    v_burst bigint;
    v_fill interval;
    v_special boolean;
    v_ctid tid;
    v_left bigint;
    v_now timestamptz;
    v_turn bigint;
    v_used bigint;
    v_start timestamptz;
    v_reset timestamptz;
    v_checked boolean;
    v_answer pglimit.hit_row;
begin
    -- the usual case in one expression; a third separator may be one inside a name, which would
    -- meet another key
    if (
        current_setting('transaction_isolation') = 'read committed'
        and current_setting('transaction_read_only') = 'off'
        and pg_current_xact_id_if_assigned() is null
        and hit.cost > 0
        and hit.algorithm is null
        and hit.burst is null
        and v_key not like e'%\x1f%\x1f%\x1f%'
    ) is not true then
        if current_setting('transaction_isolation') <> 'read committed'
            or current_setting('transaction_read_only') <> 'off'
            or pg_current_xact_id_if_assigned() is not null
        then
            perform pglimit._check_transaction('hit');
        end if;
        hit.tenant := coalesce(hit.tenant, current_setting('pglimit.tenant', true), '');
        if (
            hit.cost > 0
            and coalesce(hit.algorithm, 'fixed_window') = 'fixed_window'
            and hit.burst is null
            and hit.tenant not like e'%\x1f%'
            and hit.limit_name not like e'%\x1f%'
        ) is not true then
            if hit.cost = 0 then
                return pglimit.peek(
                    hit.limit_name, hit.subject, hit.max_hits, hit.per, hit.cost,
                    hit.algorithm, hit.burst, hit.tenant);
            end if;
            if hit.cost > 0
                and hit.algorithm in ('sliding_window', 'token_bucket')
                and v_key not like e'%\x1f%\x1f%\x1f%'
            then
                v_answer := pglimit._hit_given(
                    v_key, hit.cost, hit.max_hits, hit.per, hit.algorithm, hit.burst);
                if v_answer.allowed is not null then
                    return v_answer;
                end if;
            end if;
            perform pglimit._check_hit(
                hit.limit_name, hit.subject, hit.max_hits, hit.per, hit.cost,
                hit.algorithm, hit.burst, hit.tenant);
            if coalesce(hit.algorithm, 'fixed_window') <> 'fixed_window' or hit.burst is not null
            then
                return pglimit._hit_special(
                    hit.limit_name, hit.subject, hit.max_hits, hit.per, hit.cost,
                    hit.algorithm, hit.burst, hit.tenant);
            end if;
        end if;
    end if;

    if hit.max_hits is null or hit.per is null then
        if hit.max_hits is not null or hit.per is not null then
            perform pglimit._check_hit(
                hit.limit_name, hit.subject, hit.max_hits, hit.per, hit.cost,
                hit.algorithm, hit.burst, split_part(v_key, e'\x1f', 1));
            v_max := hit.max_hits;
            v_per := hit.per;
        end if;
        select
            coalesce(v_max, l.max_hits), coalesce(v_per, l.per), l.on_outage, l.limit_version,
            l.plain, l.straight_us, l.straight_burst, l.straight_fill
        into hit.max_hits, hit.per, v_on_outage, v_version, v_plain, v_us, v_burst, v_fill
        from pglimit.limits l
        where l.tenant = split_part(v_key, e'\x1f', 1) and l.limit_name = hit.limit_name;
        if not found then
            select
                coalesce(v_max, l.max_hits), coalesce(v_per, l.per), l.on_outage, l.limit_version,
                l.plain, l.straight_us, l.straight_burst, l.straight_fill
            into hit.max_hits, hit.per, v_on_outage, v_version, v_plain, v_us, v_burst, v_fill
            from pglimit.limits l
            where l.tenant = '' and l.limit_name = hit.limit_name;
            if not found then
                perform pglimit._check_hit(
                    hit.limit_name, hit.subject, v_max, v_per, hit.cost,
                    hit.algorithm, hit.burst, split_part(v_key, e'\x1f', 1));
                perform pglimit._unknown_limit(hit.limit_name, v_max);
            end if;
        end if;
        if v_us is not null then
            -- another algorithm, if the call does not name this one
            if hit.algorithm is not null
                or v_per is not null
                or not v_plain and v_max is not null
            then
                v_plain := false;
                v_us := null;
            elsif v_burst is not null then
                return coalesce(
                    pglimit._hit_bucket(
                        v_key, hit.cost, hit.max_hits, v_burst, hit.per, v_us, v_fill, v_on_outage,
                        v_version, v_version),
                    pglimit._hit_special(
                        hit.limit_name, hit.subject, null, null, hit.cost, null, null,
                        split_part(v_key, e'\x1f', 1)));
            elsif not v_plain then
                return coalesce(
                    pglimit._hit_sliding(
                        v_key, hit.cost, hit.max_hits, hit.per, v_us, v_on_outage, v_version,
                        v_version),
                    pglimit._hit_special(
                        hit.limit_name, hit.subject, null, null, hit.cost, null, null,
                        split_part(v_key, e'\x1f', 1)));
            end if;
        end if;
        if not v_plain then
            return pglimit._hit_special(
                hit.limit_name, hit.subject, v_max, v_per, hit.cost, hit.algorithm, null,
                split_part(v_key, e'\x1f', 1));
        end if;
        if v_per is not null then
            perform pglimit._fixed_interval('per', v_per);
        end if;
    elsif (hit.per > '0 s' and hit.per < '30 days') is not true then
        perform pglimit._fixed_interval('per', hit.per);
    end if;

    -- no limit 1: INTO takes the first row and stops, a Limit node would only cost
    select c.ctid, greatest(hit.max_hits, -1) - c.used, c.reset_at
    into v_ctid, v_left, v_reset
    from pglimit.counters c
    where c.key = v_key
    order by c.turn desc;
    if hit.cost <= v_left then
        update pglimit.counters c
        set used = c.used + hit.cost, changes = c.changes + 1
        where c.ctid = v_ctid
            and c.key = v_key
            and c.changes < 64
            and c.used <= hit.max_hits - hit.cost
            and c.reset_at > clock_timestamp()
        returning hit.max_hits - c.used, c.reset_at into v_left, v_reset;
        if found then
            return row(
                true, 'allowed', hit.max_hits, v_left, null, v_reset,
                v_on_outage, v_version, hit.cost)::pglimit.hit_row;
        end if;
    elsif hit.cost <= hit.max_hits then
        v_now := clock_timestamp();
        if v_reset > v_now then
            -- a row may say otherwise, once any row has
            if v_plain is null and pg_sequence_last_value('pglimit.special_limits') is not null then
                select not l.plain
                into v_special
                from pglimit.limits l
                where l.tenant in (split_part(v_key, e'\x1f', 1), '')
                    and l.limit_name = hit.limit_name
                order by l.tenant desc
                limit 1;
            end if;
            if v_special is not true then
                return row(
                    false, 'limit', hit.max_hits, greatest(v_left, 0), v_reset - v_now, v_reset,
                    v_on_outage, v_version, 0)::pglimit.hit_row;
            end if;
            return pglimit._hit_special(
                hit.limit_name, hit.subject, hit.max_hits, hit.per, hit.cost, null, null,
                split_part(v_key, e'\x1f', 1));
        end if;
    elsif hit.max_hits < 0 then
        perform pglimit._check_hit(
            hit.limit_name, hit.subject, hit.max_hits, hit.per, hit.cost,
            hit.algorithm, hit.burst, split_part(v_key, e'\x1f', 1));
    end if;

    -- a new key, an ended window, a cost above the limit, a turn that is used up, a lost race, a
    -- stamped row; of the calendar, whose windows begin elsewhere, none of them
    if v_us is not null then
        return pglimit._hit_special(
            hit.limit_name, hit.subject, v_max, null, hit.cost, null, null,
            split_part(v_key, e'\x1f', 1));
    end if;
    for v_attempt in 1..1000 loop
        select c.turn, c.used, c.reset_at
        into v_turn, v_used, v_reset
        from pglimit.counters c
        where c.key = v_key
        order by c.turn desc;
        v_now := clock_timestamp();

        if v_turn is null then
            if v_checked is null then
                perform pglimit._check_hit(
                    hit.limit_name, hit.subject, hit.max_hits, hit.per, hit.cost,
                    hit.algorithm, hit.burst, split_part(v_key, e'\x1f', 1));
            end if;
            -- before the lock, so that who is blocked draws nothing, and again under it
            perform
            from pglimit.limit_overrides o
            where o.tenant = split_part(v_key, e'\x1f', 1)
                and o.limit_name = hit.limit_name
                and o.subject = hit.subject
            union all
            select
            from pglimit.blocks b
            where b.tenant = split_part(v_key, e'\x1f', 1)
                and b.limit_name in (hit.limit_name, '*')
                and b.subject in (hit.subject, ''); -- '' where networks are blocked
            exit when found;
            if v_checked is null then
                v_checked := true;
                -- a mode, or a table of its own: before the lock, so that a refusal draws nothing
                if v_plain is null
                    and pg_sequence_last_value('pglimit.special_limits') is not null
                then
                    select not l.plain
                    into v_special
                    from pglimit.limits l
                    where l.tenant in (split_part(v_key, e'\x1f', 1), '')
                        and l.limit_name = hit.limit_name
                    order by l.tenant desc
                    limit 1;
                    exit when v_special;
                end if;
                if hit.cost <= hit.max_hits then
                    -- two creators would both succeed, with different turns: one at a time, then
                    -- look again
                    perform pglimit._lock_creation(0, v_key);
                    continue;
                end if;
            end if;
            if hit.cost > hit.max_hits then
                return row(
                    false, 'never', hit.max_hits, hit.max_hits, null, null,
                    v_on_outage, v_version, 0)::pglimit.hit_row;
            end if;
            hit.per := pglimit._fixed_interval('per', hit.per);
            insert into pglimit.counters (key, turn, changes, used, window_start, reset_at)
            values (
                v_key, (date_part('epoch', v_now) * 1000000)::bigint, 0, hit.cost,
                v_now, v_now + hit.per);
            return row(
                true, 'allowed', hit.max_hits, hit.max_hits - hit.cost, null, v_now + hit.per,
                v_on_outage, v_version, hit.cost)::pglimit.hit_row;
        end if;

        exit when v_reset is null;
        if v_reset <= v_now then
            v_used := 0;
            v_reset := null;
        end if;
        if v_reset is null or hit.cost > hit.max_hits - v_used then
            -- also where a window begins: the limit may be counted elsewhere by now
            if v_plain is null and pg_sequence_last_value('pglimit.special_limits') is not null then
                select not l.plain
                into v_special
                from pglimit.limits l
                where l.tenant in (split_part(v_key, e'\x1f', 1), '')
                    and l.limit_name = hit.limit_name
                order by l.tenant desc
                limit 1;
                exit when v_special;
            end if;
        end if;
        if hit.cost > hit.max_hits - v_used then
            return row(
                false,
                case when hit.cost > hit.max_hits then 'never' else 'limit' end,
                hit.max_hits,
                greatest(hit.max_hits - v_used, 0),
                case when hit.cost <= hit.max_hits then v_reset - v_now end,
                v_reset,
                v_on_outage,
                v_version, 0)::pglimit.hit_row;
        end if;

        -- take the row's lock, then decide by what it holds and by a fresh clock
        select c.used, c.window_start, c.reset_at
        into v_used, v_start, v_reset
        from pglimit.counters c
        where c.key = v_key and c.turn = v_turn
        for update;
        continue when not found;
        exit when v_reset is null;
        v_now := clock_timestamp();
        if v_reset <= v_now then
            v_used := 0;
            v_start := v_now;
            v_reset := v_now + pglimit._fixed_interval('per', hit.per);
        end if;
        continue when hit.cost > hit.max_hits - v_used;
        update pglimit.counters c
        set turn = case
                when c.changes < 64 then c.turn
                else greatest(c.turn + 1, (date_part('epoch', v_now) * 1000000)::bigint)
            end,
            changes = case when c.changes < 64 then c.changes + 1 else 0 end,
            used = v_used + hit.cost,
            window_start = v_start,
            reset_at = v_reset,
            shadow_refused = case when c.window_start = v_start then c.shadow_refused else 0 end
        where c.key = v_key and c.turn = v_turn;
        return row(
            true, 'allowed', hit.max_hits, hit.max_hits - v_used - hit.cost, null, v_reset,
            v_on_outage, v_version, hit.cost)::pglimit.hit_row;
    end loop;

    -- not plain, or every race was lost: then it has its own bound, and says so
    return pglimit._hit_special(
        hit.limit_name, hit.subject,
        case when v_plain then v_max else hit.max_hits end,
        case when v_plain then v_per else hit.per end,
        hit.cost, null, null, split_part(v_key, e'\x1f', 1));
end
$$;

comment on function pglimit.hit(text, text, bigint, interval, bigint, text, bigint, text) is
    'Records a hit of a subject and says whether the limit allows it. '
    'One row; a refusal is a row with allowed = false and writes nothing. '
    'PGL01 invalid argument, PGL02 unknown limit, PGL03 wrong transaction, '
    '55P03 after 1 s of waiting.';

revoke all on function pglimit.hit(text, text, bigint, interval, bigint, text, bigint, text)
    from public;
