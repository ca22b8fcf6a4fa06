-- Says how the next hit of a subject is decided: by which row (`rule`), with which override and
-- block, from what is counted (`counter`), how much of that is held and can still be settled
-- (`holds`), by which sum (`arithmetic`), and the answer. It is for a limit that has a row; of
-- another only its callers know the quota, so there is no sum, and no answer unless a block gives
-- it. Writes and locks nothing. The answer is of the function that decides hits, for the same
-- instant as the sum; where counter or block moved on between the two both are made anew, ten times
-- at most. Holds have no index but their number, for a hold would pay for it: so the 100,000 latest
-- are read, which takes some 30 ms, and where there are more it says so.
create or replace function pglimit.explain_limit(
    limit_name text,
    subject text,
    tenant text default null
)
returns setof pglimit.explain_row
language plpgsql
volatile
parallel unsafe
called on null input
security definer
rows 5
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
    v_tenant text := coalesce(
        explain_limit.tenant, current_setting('pglimit.tenant', true), '');
    v_key text := format(
        e'%s\x1f%s\x1f%s', v_tenant, explain_limit.limit_name, explain_limit.subject);
    v_rule pglimit.limits;
    v_override pglimit.limit_overrides;
    v_holds boolean;
    v_row pglimit.counter_state;
    v_after pglimit.counter_state;
    v_unlogged pglimit.counter_state;
    v_answer pglimit.hit_row;
    v_left pglimit.hit_row;
    v_block record;
    v_blocked boolean;
    v_started timestamptz;
    v_same boolean;
    v_looked bigint;
    v_holds_read pglimit.holds[];
    v_held record;
    v_now timestamptz;
    v_reset timestamptz;
    v_open boolean;
    v_max bigint;
    v_us numeric;
    v_elapsed numeric;
    v_used numeric;
    v_previous numeric;
    v_level numeric;
    v_refused text;
    v_sum text;
    v_count text;
    v_line pglimit.explain_row;
    v_is_reset boolean;
    v_other boolean;
    v_from bigint[];
    v_to bigint[];
    v_changed_at timestamptz;
begin
    perform pglimit._check_standby('explain_limit');
    perform pglimit._check_names(
        'limit', explain_limit.limit_name, 'subject', explain_limit.subject, v_tenant);
    for v_attempt in 1..10 loop
        select l.* into v_rule
        from pglimit.limits l
        where l.tenant in (v_tenant, '') and l.limit_name = explain_limit.limit_name
        order by l.tenant desc
        limit 1;
        select o.* into v_override
        from pglimit.limit_overrides o
        where o.tenant = v_tenant
            and o.limit_name = explain_limit.limit_name
            and o.subject = explain_limit.subject;
        v_row := null;
        if v_rule.durable then
            select c.* into v_row
            from pglimit.durable_counters c
            where c.key = v_key
            order by c.turn desc
            limit 1;
        end if;
        -- also what was counted before it became durable, or was so again
        if v_row.turn is null
            or coalesce(v_row.open_since, v_row.window_start) < v_rule.updated_at
        then
            select c.* into v_unlogged
            from pglimit.counters c
            where c.key = v_key
            order by c.turn desc
            limit 1;
            if v_row.turn is null
                or coalesce(v_unlogged.reset_at, v_unlogged.special_reset_at) > clock_timestamp()
            then
                v_row := v_unlogged;
            end if;
        end if;
        v_now := clock_timestamp();
        -- of several the longest decides, as in _hit_special; what blocks in another way is a
        -- branch more. One that is over is shown while its strikes count
        select s.* into v_block
        from (
            select
                b.limit_name, b.subject, b.blocked_until, b.forget_at, b.strikes, b.why,
                b.updated_at, b.updated_by, null::cidr as network
            from pglimit.blocks b
            where b.tenant = v_tenant
                and b.limit_name in (explain_limit.limit_name, '*')
                and b.subject = explain_limit.subject
            union all
            -- a range that ends later than any of these
            select
                f.limit_name, explain_limit.subject, f.blocked_until, f.blocked_until, f.strikes,
                f.why, f.updated_at, f.updated_by, f.network
            from pglimit._find_block(
                v_tenant, explain_limit.limit_name, explain_limit.subject, v_now) f
            where f.network is not null
        ) s
        where coalesce(s.blocked_until > v_now, true) or s.forget_at > v_now
        order by s.blocked_until desc nulls first
        limit 1;
        v_blocked := found and coalesce(v_block.blocked_until > v_now, true);
        exit when v_rule.limit_name is null;
        v_answer := pglimit._hit_special(
            explain_limit.limit_name, explain_limit.subject, null, null, 1, null, null, v_tenant,
            look_only => true, at => v_now);
        -- past any block, and below nothing where there is debt
        v_left := pglimit._hit_special(
            explain_limit.limit_name, explain_limit.subject, null, null, 0, null, null, v_tenant,
            look_only => true, at => v_now, forced => true);
        v_after := null;
        if v_rule.durable then
            select c.* into v_after
            from pglimit.durable_counters c
            where c.key = v_key
            order by c.turn desc
            limit 1;
        end if;
        -- also what was counted before it became durable, or was so again
        if v_after.turn is null
            or coalesce(v_after.open_since, v_after.window_start) < v_rule.updated_at
        then
            select c.* into v_unlogged
            from pglimit.counters c
            where c.key = v_key
            order by c.turn desc
            limit 1;
            if v_after.turn is null
                or coalesce(v_unlogged.reset_at, v_unlogged.special_reset_at) > clock_timestamp()
            then
                v_after := v_unlogged;
            end if;
        end if;
        exit when (v_after.turn, v_after.changes) is not distinct from (v_row.turn, v_row.changes)
            and (v_answer.reason = 'blocked') = v_blocked;
    end loop;

    v_holds := v_override.subject is not null
        and coalesce(v_override.valid_from <= v_now, true)
        and coalesce(v_override.valid_until > v_now, true);
    v_reset := coalesce(v_row.reset_at, v_row.special_reset_at);
    v_open := coalesce(v_reset > v_now, false);
    v_max := case when v_holds then v_override.max_hits else v_rule.max_hits end;
    v_count := format('%s of %s', v_left.quota::numeric - v_left.remaining, v_left.quota);
    if v_rule.algorithm <> 'calendar' then
        v_us := extract(epoch from v_rule.per) * 1000000;
    end if;
    if v_blocked then
        v_refused := 'refused (blocked)'
            || coalesce(', for another ' || (v_block.blocked_until - v_now), ' for ever');
    end if;
    v_same := v_rule.limit_name is null
        or v_row.algorithm is not distinct from
            nullif(nullif(v_rule.algorithm, 'fixed_window'), 'calendar');
    v_used := v_row.used;
    v_previous := coalesce(v_row.previous, 0);
    v_started := v_row.window_start;
    if v_same and v_rule.algorithm = 'sliding_window' then
        v_elapsed := extract(epoch from v_now - v_row.window_start) * 1000000;
        if v_elapsed >= 2 * v_us then
            v_used := 0;
            v_previous := 0;
            v_elapsed := 0;
            v_started := v_now;
        elsif v_elapsed >= v_us then
            v_previous := v_used;
            v_used := 0;
            v_elapsed := v_elapsed - v_us;
            v_started := v_started + v_rule.per;
        end if;
    end if;

    if v_open and v_rule.carries_until is not null then
        select f.reset, f.from_hits, f.to_hits, f.changed_at
        into v_is_reset, v_from, v_to, v_changed_at
        from pglimit._find_carries(
            v_rule, v_tenant, explain_limit.subject,
            case
                when v_row.algorithm is null then greatest(v_row.window_start, v_row.open_since)
                else v_row.open_since
            end) f;
    end if;
    v_other := coalesce(
        v_open and v_rule.algorithm = 'token_bucket' and v_same and (
            v_row.previous <> greatest(v_max, 1) or v_reset - v_row.window_start <> v_rule.per
        ),
        false);

    -- what is still charged for holds, and can be given back: as _hit_special decides it
    select
        count(*),
        array_agg(h::pglimit.holds) filter (
            where h.tenant = v_tenant
                and h.limit_name = explain_limit.limit_name
                and h.subject = explain_limit.subject
                and h.actual is null)
    into v_looked, v_holds_read
    from (
        (
            select a.*
            from pglimit.holds a
            where not coalesce(v_rule.durable, false)
            order by a.hold_id desc
            limit 100000
        )
        union all
        (
            select a.*
            from pglimit.durable_holds a
            where v_rule.durable
            order by a.hold_id desc
            limit 100000
        )
    ) h;
    select
        count(*) filter (where x.open) as open,
        count(*) filter (where x.open and x.counted) as counted,
        coalesce(sum(x.charged) filter (where x.open and x.counted), 0) as charged,
        min(x.expires_at) filter (where x.open) as first_lapses_at,
        count(*) filter (where not x.open and x.counted and x.returns) as lapsed,
        coalesce(
            sum(x.charged) filter (where not x.open and x.counted and x.returns), 0) as returns
    into v_held
    from (
        select
            h.charged, h.expires_at, h.returns,
            h.expires_at > v_now as open,
            v_open
                and v_same
                and not v_other
                and v_is_reset is not true
                and v_from is null
                and h.open_since is not distinct from v_row.open_since
                and (v_row.algorithm = 'token_bucket' or h.window_start = v_started) is true
                as counted
        from unnest(v_holds_read) h
    ) x;

    v_line.step := 'rule';
    v_line.says := case
        when v_rule.limit_name is null then
            'no row of this limit: whoever calls brings max_hits and per, and knows the quota'
        else format('%s hit%s per %s, %s%s%s, mode %s: the row of %s, version %s',
            v_rule.max_hits, case when v_rule.max_hits = 1 then '' else 's' end, v_rule.per,
            v_rule.algorithm, coalesce(', burst ' || v_rule.burst, ''),
            case when v_rule.durable then ', durable' else '' end,
            v_rule.mode,
            case
                when v_rule.tenant = '' then 'all tenants'
                else format('tenant %s', quote_literal(v_rule.tenant))
            end,
            v_rule.limit_version)
    end;
    v_line.facts := case
        when v_rule.limit_name is not null
            then to_jsonb(v_rule) - array[
                'plain', 'straight_us', 'straight_burst', 'straight_fill', 'open_until']
    end;
    return next v_line;

    v_line.step := 'override';
    v_line.says := case
        when v_override.subject is null then 'none of this subject'
        else format('max_hits %s %s, version %s',
            v_override.max_hits,
            case
                when v_holds then coalesce(
                    'until ' || to_char(v_override.valid_until, 'YYYY-MM-DD HH24:MI:SS"Z"'),
                    'for ever')
                when v_override.valid_until <= v_now then
                    'no more, since ' || to_char(
                        v_override.valid_until, 'YYYY-MM-DD HH24:MI:SS"Z"')
                else 'not before ' || to_char(v_override.valid_from, 'YYYY-MM-DD HH24:MI:SS"Z"')
            end,
            v_override.limit_version)
    end;
    v_line.facts := case when v_override.subject is not null then to_jsonb(v_override) end;
    return next v_line;

    v_line.step := 'block';
    v_line.says := case
        when v_block.subject is null then 'none of this subject'
        else format('%s at %s, %s%s%s',
            case when v_blocked then 'blocked' else 'none now; the last one,' end,
            case when v_block.limit_name = '*' then 'every limit' else 'this limit' end,
            coalesce(
                case when v_blocked then 'until ' else 'ended ' end
                    || to_char(v_block.blocked_until, 'YYYY-MM-DD HH24:MI:SS"Z"'),
                'for ever'),
            case
                when v_block.strikes = 1 then ', after 1 strike'
                when v_block.strikes > 1 then format(', after %s strikes', v_block.strikes)
            end,
            coalesce(', as all of ' || v_block.network, '') || coalesce(': ' || v_block.why, ''))
    end;
    v_line.facts := case
        when v_block.network is not null then to_jsonb(v_block)
        when v_block.subject is not null then to_jsonb(v_block) - 'network'
    end;
    return next v_line;

    v_line.step := 'counter';
    v_line.says := case
        when v_row.turn is null then 'nothing was counted'
        when not v_open then
            'nothing: it ended at ' || to_char(v_reset, 'YYYY-MM-DD HH24:MI:SS"Z"')
        else format('%s, %s %s%s%s',
            case v_row.algorithm
                when 'token_bucket' then 'a bucket'
                else format('%s used%s since %s',
                    v_row.used,
                    case
                        when v_row.algorithm = 'sliding_window'
                            then format(', %s in the window before,', v_row.previous)
                    end,
                    to_char(v_row.window_start, 'YYYY-MM-DD HH24:MI:SS"Z"'))
            end,
            case when v_row.algorithm = 'token_bucket' then 'full at' else 'nothing after' end,
            to_char(v_reset, 'YYYY-MM-DD HH24:MI:SS"Z"'),
            coalesce(', by ' || v_row.algorithm, ''),
            case
                when v_row.shadow_refused > 0
                    then format(', %s more let by in mode shadow', v_row.shadow_refused)
                else ''
            end)
    end;
    v_line.facts := case
        when v_row.turn is not null
            then to_jsonb(v_row) - array['key', 'turn', 'changes', 'counted_by']
    end;
    return next v_line;

    v_line.step := 'holds';
    v_line.says := concat_ws('; ',
        case
            when v_held.open = 0 then 'none open'
            else format(
                case
                    when v_row.algorithm = 'token_bucket' then '%s open, charged with %s'
                    else '%s open, %s of what is used'
                end || ', the first lapses in %s',
                v_held.open, v_held.charged, v_held.first_lapses_at - v_now)
        end,
        case
            when v_held.open > v_held.counted then format(
                '%s of them of a count that is over: to settle that gives nothing back',
                v_held.open - v_held.counted)
        end,
        case
            when v_held.lapsed > 0 then format(
                '%s lapsed, of which the next purge gives back %s', v_held.lapsed, v_held.returns)
        end,
        case when v_looked = 100000 then 'only the latest 100,000 of all holds were read' end);
    v_line.facts := case when v_held.open + v_held.lapsed > 0 then to_jsonb(v_held) end;
    return next v_line;
    if v_rule.limit_name is null then
        if v_blocked then
            v_line.step := 'answer';
            v_line.says := v_refused;
            v_line.facts := null;
            return next v_line;
        end if;
        return;
    end if;

    if not v_open then
        v_sum := format('0 of %s', v_answer.quota);
    elsif v_is_reset then
        v_sum := format('0 of %s: what was counted before the limit was changed at %s is nothing',
            v_answer.quota, to_char(v_changed_at, 'YYYY-MM-DD HH24:MI:SS"Z"'));
    elsif cardinality(v_from) > 0 then
        v_sum := format('counted until the limit was changed, goes on in proportion (%s): %s',
            (
                select string_agg(format('%s to %s', u.from_hits, u.to_hits), ', ')
                from unnest(v_from, v_to) u (from_hits, to_hits)
            ),
            v_count);
    elsif v_other then
        v_sum := format('filled by %s per %s until now, goes on by %s per %s and lacks as much: %s',
            v_row.previous, v_reset - v_row.window_start, greatest(v_max, 1), v_rule.per, v_count);
    elsif not v_same then
        v_sum := format('counted by %s until now, goes on by %s with as much used: %s',
            coalesce(v_row.algorithm, 'fixed_window'), v_rule.algorithm, v_count);
    elsif v_rule.algorithm = 'sliding_window' then
        v_sum := format(
            '%s in this window + ceil(%s × %s) of the one before, of which so much is still within '
                || '%s = %s of %s',
            v_used, v_previous, round((v_us - v_elapsed) / v_us, 4), v_rule.per,
            v_used + ceil(v_previous * (v_us - v_elapsed) / v_us), v_answer.quota);
    elsif v_rule.algorithm = 'token_bucket' then
        v_level := extract(epoch from v_reset - v_now) * 1000000 * greatest(v_max, 1)
            - v_row.used;
        v_sum := format(
            'full again in %s, and filled by %s per %s: it lacks ceil(%s) of %s',
            v_reset - v_now, greatest(v_max, 1), v_rule.per, round(v_level / v_us, 4),
            v_answer.quota);
    else
        v_sum := format('%s of %s in the window that ends in %s',
            v_row.used, v_answer.quota, v_reset - v_now);
    end if;
    v_line.step := 'arithmetic';
    v_line.says := case
        when v_rule.mode = 'off' and v_blocked then 'none: the subject is blocked'
        when v_rule.mode = 'off' then 'none: mode off allows everything and counts nothing'
        else case when v_blocked then 'not asked while it is blocked: ' else '' end
            || v_sum
            || case
                when v_left.remaining < 0 then format(': a debt of %s', -v_left.remaining)
                else ''
            end
    end;
    v_line.facts := case
        when v_rule.mode <> 'off' then jsonb_build_object(
            'quota', v_left.quota,
            'used', least(v_left.quota::numeric - v_left.remaining, 9223372036854775807),
            'remaining', greatest(v_left.remaining, 0),
            'debt', greatest(-v_left.remaining, 0))
    end;
    return next v_line;

    v_line.step := 'answer';
    v_line.says := coalesce(
        v_refused,
        case
            when not v_answer.allowed then 'refused (' || v_answer.reason || ')'
            when v_answer.reason = 'shadow' then 'allowed for mode shadow alone'
            when v_answer.reason = 'off' then 'allowed for mode off'
            else 'allowed'
        end
            || format(': %s left of %s', v_answer.remaining, v_answer.quota)
            || coalesce(', room again in ' || v_answer.retry_after, ''));
    v_line.facts := to_jsonb(v_answer);
    return next v_line;
end
$$;

comment on function pglimit.explain_limit(text, text, text) is
    'Says by which row, override, block, counter and sum the next hit of a subject is decided, how '
    'much of the count is held, and the answer. '
    'PGL01 invalid argument, PGL03 on a standby.';

revoke all on function pglimit.explain_limit(text, text, text) from public;
