-- Records a hit and decides it where hit's straight way does not serve: the limit is not plain (a
-- mode other than enforce), the subject may have an override, or a refusal has to look for a mode
-- first. What is not plain is decided here and nowhere else, but for _look, which must answer the
-- same. The arguments are the caller's own: null where the limit's row is to give them, and that is
-- looked up here again.
-- An override beats the row and the arguments, a mode beats the decision. For a call that brings
-- its own limit the mode is looked up where it would be refused, as in hit: so `off` records what
-- is within the limit that was given.
-- Writes: counters (one row). Locks: that row; for a key without a row, first its creation lock. A
-- refusal writes and locks nothing.
-- Safe under concurrency because it decides twice: by a plain read, and, where that ends in a
-- change, again by the row under its lock, with a fresh clock and a fresh look at the override. Who
-- sets an override stamps the row under the same lock, so a row that is unstamped under it has no
-- override that could hold, and a stamp is taken off only when none is left.
create or replace function pglimit._hit_special(
    limit_name text,
    subject text,
    max_hits bigint,
    per interval,
    cost bigint,
    tenant text
)
returns pglimit.hit_row
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_key text := format(
        e'%s\x1f%s\x1f%s', _hit_special.tenant, _hit_special.limit_name, _hit_special.subject);
    v_max bigint := _hit_special.max_hits;
    v_per interval := _hit_special.per;
    v_mode text;
    v_on_outage text;
    v_version bigint;
    v_phase text := 'look';
    v_turn bigint;
    v_used bigint;
    v_shadow_refused bigint;
    v_start timestamptz;
    v_reset timestamptz;
    v_stamped boolean;
    v_open boolean;
    v_now timestamptz;
    v_quota bigint;
    v_quota_version bigint;
    v_override bigint;
    v_override_version bigint;
    v_valid boolean;
    v_refused boolean;
    v_retry interval;
begin
    if v_max is null or v_per is null then
        select
            coalesce(v_max, l.max_hits), coalesce(v_per, l.per), l.mode, l.on_outage,
            l.limit_version
        into v_max, v_per, v_mode, v_on_outage, v_version
        from pglimit.limits l
        where l.tenant in (_hit_special.tenant, '') and l.limit_name = _hit_special.limit_name
        order by l.tenant desc
        limit 1;
        if not found then
            perform pglimit._unknown_limit(
                _hit_special.limit_name, _hit_special.max_hits);
        end if;
    end if;

    for v_attempt in 1..1000 loop
        if v_phase = 'lock' then
            select
                c.used, c.shadow_refused, c.window_start,
                coalesce(c.reset_at, c.special_reset_at), c.reset_at is null
            into v_used, v_shadow_refused, v_start, v_reset, v_stamped
            from pglimit.counters c
            where c.key = v_key and c.turn = v_turn
            for update;
            if not found then
                v_phase := 'look';
                continue;
            end if;
        else
            select
                c.turn, c.used, c.shadow_refused, c.window_start,
                coalesce(c.reset_at, c.special_reset_at), c.reset_at is null
            into v_turn, v_used, v_shadow_refused, v_start, v_reset, v_stamped
            from pglimit.counters c
            where c.key = v_key
            order by c.turn desc
            limit 1;
        end if;
        v_now := clock_timestamp();

        -- the quota, and whether the row is to be stamped
        v_quota := v_max;
        v_quota_version := v_version;
        if v_turn is null or v_stamped then
            select o.max_hits, o.limit_version, coalesce(o.valid_from <= v_now, true)
            into v_override, v_override_version, v_valid
            from pglimit.limit_overrides o
            where o.tenant = _hit_special.tenant
                and o.limit_name = _hit_special.limit_name
                and o.subject = _hit_special.subject
                and coalesce(o.valid_until > v_now, true);
            v_stamped := found;
            if v_valid then
                v_quota := v_override;
                v_quota_version := v_override_version;
            end if;
        end if;

        v_open := coalesce(v_reset > v_now, false);
        if not v_open then
            v_used := 0;
            v_shadow_refused := 0;
            v_start := v_now;
            v_reset := v_now + pglimit._fixed_interval('per', v_per);
        end if;
        v_refused := _hit_special.cost > v_quota - v_used;
        if v_refused and v_mode is null then
            select l.mode
            into v_mode
            from pglimit.limits l
            where l.tenant in (_hit_special.tenant, '')
                and l.limit_name = _hit_special.limit_name
            order by l.tenant desc
            limit 1;
        end if;
        if v_mode = 'off' then
            return row(
                true, 'off', v_quota, v_quota, null, null,
                v_on_outage, v_quota_version)::pglimit.hit_row;
        end if;
        v_retry := case
            when v_refused and _hit_special.cost <= v_quota then v_reset - v_now
        end;
        if v_refused and v_mode is distinct from 'shadow' then
            return row(
                false,
                case when _hit_special.cost > v_quota then 'never' else 'limit' end,
                v_quota,
                greatest(v_quota - v_used, 0),
                v_retry,
                case when v_open then v_reset end,
                v_on_outage,
                v_quota_version)::pglimit.hit_row;
        end if;

        -- a change: of a new row under the creation lock, of one that is there under its own
        if v_turn is null and v_phase <> 'create' then
            perform pglimit._check_hit(
                _hit_special.limit_name, _hit_special.subject, v_quota, v_per,
                _hit_special.cost, null, null, _hit_special.tenant);
            perform pglimit._lock_creation(0, v_key);
            v_phase := 'create';
            continue;
        elsif v_turn is not null and v_phase <> 'lock' then
            v_phase := 'lock';
            continue;
        end if;
        if v_refused then
            v_shadow_refused := v_shadow_refused + 1;
        else
            v_used := v_used + _hit_special.cost;
        end if;
        if v_turn is null then
            insert into pglimit.counters (
                key, turn, changes, used, window_start, reset_at, special_reset_at, shadow_refused)
            values (
                v_key, (date_part('epoch', v_now) * 1000000)::bigint, 0, v_used, v_start,
                case when not v_stamped then v_reset end, case when v_stamped then v_reset end,
                v_shadow_refused);
        else
            update pglimit.counters c
            set turn = case
                    when c.changes < 64 then c.turn
                    else greatest(c.turn + 1, (date_part('epoch', v_now) * 1000000)::bigint)
                end,
                changes = case when c.changes < 64 then c.changes + 1 else 0 end,
                used = v_used,
                window_start = v_start,
                reset_at = case when not v_stamped then v_reset end,
                special_reset_at = case when v_stamped then v_reset end,
                shadow_refused = v_shadow_refused
            where c.key = v_key and c.turn = v_turn;
        end if;
        return row(
            true,
            case when v_refused then 'shadow' else 'allowed' end,
            v_quota,
            greatest(v_quota - v_used, 0),
            v_retry,
            v_reset,
            v_on_outage,
            v_quota_version)::pglimit.hit_row;
    end loop;

    raise exception using
        errcode = '55P03',
        message = format('hit on limit %s lost every race', quote_literal(_hit_special.limit_name)),
        detail = 'Other sessions changed the count between each look and its update, 1,000 times.',
        hint = 'Try again; if it stays, look for a client that hits one subject without pause.';
end
$$;

comment on function pglimit._hit_special(text, text, bigint, interval, bigint, text) is
    'internal: a hit of a limit that is not plain, or of a subject that may have an override';

revoke all on function pglimit._hit_special(text, text, bigint, interval, bigint, text)
    from public;
