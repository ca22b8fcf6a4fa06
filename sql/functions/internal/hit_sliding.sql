-- hit's straight way of a sliding_window whose numbers are at hand: decides by one plain read, and
-- changes the row only as it was read; null where it does not serve, and _hit_special is to decide:
-- a key without a row, one that is counted in another way until now (counted_by), a subject with an
-- override or a block, a cost above the limit, a turn that is used up; once any limit has had
-- another mode, of a call's own limit (limit_version is null) a refusal and a window that begins.
-- `us` is per in microseconds. All products fit a bigint (see limits.straight_us), for a counter of
-- more than max_hits is not counted_by any limit. `at` is for tests; null: the clock.
-- Writes: counters (one row). Locks: that row.
-- Safe under concurrency because ctid and xmin are of the one version that was read: whoever waited
-- for somebody who changed the row finds another one, and decides again, having locked the row
-- first. Whoever waited for somebody who gave up counts as of the instant before the wait: nobody
-- changed the row since.
create or replace function pglimit._hit_sliding(
    key text,
    cost bigint,
    max_hits bigint,
    per interval,
    us bigint,
    on_outage text,
    limit_version bigint,
    counted_by bigint,
    at timestamptz default null,
    locked boolean default false
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
    v_ctid tid;
    v_xmin xid;
    v_used bigint;
    v_previous bigint;
    v_start timestamptz;
    v_reset timestamptz;
    v_fits boolean;
    v_now timestamptz;
    v_rest bigint;
    v_left bigint;
    v_wait bigint;
begin
    if locked then
        select
            c.ctid, c.xmin, c.used, c.previous, c.window_start, c.special_reset_at,
            not c.overridden and c.counted_by = _hit_sliding.counted_by
        into v_ctid, v_xmin, v_used, v_previous, v_start, v_reset, v_fits
        from pglimit.counters c
        where c.key = _hit_sliding.key
        order by c.turn desc
        limit 1
        for update;
    else
        select
            c.ctid, c.xmin, c.used, c.previous, c.window_start, c.special_reset_at,
            not c.overridden and c.counted_by = _hit_sliding.counted_by
        into v_ctid, v_xmin, v_used, v_previous, v_start, v_reset, v_fits
        from pglimit.counters c
        where c.key = _hit_sliding.key
        order by c.turn desc;
    end if;
    if v_fits is not true or cost > max_hits then
        return null;
    end if;
    v_now := coalesce(at, clock_timestamp());
    if v_reset > v_now then
        -- how much of the window before is still within per of now
        v_rest := us - (date_part('epoch', greatest(v_now - v_start, '0 s')) * 1000000)::bigint;
        if v_rest <= 0 then
            if v_rest <= -us then
                return null;
            end if;
            v_rest := v_rest + us;
            v_previous := v_used;
            v_used := 0;
            v_start := v_start + per;
            if limit_version is null then
                -- a window begins: the limit may be counted elsewhere by now (see hit)
                if pg_sequence_last_value('pglimit.special_limits') is not null then
                    return null;
                end if;
            end if;
        end if;
        v_left := max_hits - v_used;
        if v_previous > 0 then
            v_left := v_left - (v_previous * v_rest + us - 1) / us;
        end if;
        if cost > v_left then
            v_wait := max_hits - cost - v_used;
            if v_wait >= 0 then
                v_wait := v_rest - v_wait * us / v_previous;
            else
                -- the next window's way, once this one is the one before
                v_wait := v_rest + us - (max_hits - cost) * us / v_used;
            end if;
            if limit_version is null then
                -- the call's own limit: a row may say otherwise, once any row has
                if pg_sequence_last_value('pglimit.special_limits') is not null then
                    return null;
                end if;
            end if;
            return row(
                false, 'limit', max_hits, greatest(v_left, 0),
                least(v_reset - v_now, v_wait * interval '1 microsecond'), v_reset,
                on_outage, limit_version, 0)::pglimit.hit_row;
        end if;
        v_reset := greatest(v_reset, v_now + per);
        update pglimit.counters c
        set used = v_used + cost,
            previous = v_previous,
            window_start = v_start,
            special_reset_at = v_reset,
            changes = c.changes + 1
        where c.ctid = v_ctid
            and c.xmin = v_xmin
            and c.changes < 64;
    else
        -- nothing counts any more: a new counter, to holds
        if limit_version is null then
            if pg_sequence_last_value('pglimit.special_limits') is not null then
                return null;
            end if;
        end if;
        v_left := max_hits;
        v_reset := v_now + per;
        update pglimit.counters c
        set used = cost,
            previous = 0,
            window_start = v_now,
            special_reset_at = v_reset,
            changes = c.changes + 1,
            open_since = v_now,
            bucket_sums = '{0, 0, 0}',
            shadow_refused = 0
        where c.ctid = v_ctid
            and c.xmin = v_xmin
            and c.changes < 64;
    end if;
    if not found then
        -- once more, under the row's lock; what is then left is a turn that is used up
        return case
            when not locked then pglimit._hit_sliding(
                key, cost, max_hits, per, us, on_outage, limit_version, counted_by, at, true)
        end;
    end if;
    return row(
        true, 'allowed', max_hits, v_left - cost, null, v_reset, on_outage, limit_version,
        cost)::pglimit.hit_row;
end
$$;

comment on function pglimit._hit_sliding(
    text, bigint, bigint, interval, bigint, text, bigint, bigint, timestamptz,
    boolean) is
    'internal: a hit of a sliding_window that is plain; null where _hit_special is to decide';

revoke all on function pglimit._hit_sliding(
    text, bigint, bigint, interval, bigint, text, bigint, bigint, timestamptz,
    boolean) from public;
