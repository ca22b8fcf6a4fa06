-- hit's straight way of a token_bucket whose numbers are at hand: decides by one plain read, and
-- changes the row only as it was read; null where it does not serve, and _hit_special is to decide:
-- a key without a row, one that is counted in another way until now (counted_by), a subject with an
-- override or a block, a cost above the burst, a turn that is used up; once any limit has had
-- another mode, of a call's own limit (limit_version is null) a refusal and a bucket that was full.
-- `us` is per in microseconds, `fill` how long an empty bucket takes to fill. All products fit a
-- bigint (see limits.straight_us), for a bucket that lacks more than it holds is not counted_by any
-- limit. `at` is for tests; null: the clock.
-- Writes: counters (one row). Locks: that row.
-- Safe under concurrency because ctid and xmin are of the one version that was read: whoever waited
-- for somebody who changed the row finds another one, and decides again, having locked the row
-- first. Whoever waited for somebody who gave up counts as of the instant before the wait: nobody
-- changed the row since.
-- Source: the generic cell rate algorithm (ITU-T I.371) in virtual scheduling.
create or replace function pglimit._hit_bucket(
    key text,
    cost bigint,
    max_hits bigint,
    burst bigint,
    per interval,
    us bigint,
    fill interval,
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
    v_part bigint;
    v_reset timestamptz;
    v_fits boolean;
    v_now timestamptz;
    v_ahead bigint;
    v_level bigint := 0;
    v_room bigint;
begin
    if locked then
        select
            c.ctid, c.xmin, c.used, c.special_reset_at,
            not c.overridden and c.counted_by = _hit_bucket.counted_by
        into v_ctid, v_xmin, v_part, v_reset, v_fits
        from pglimit.counters c
        where c.key = _hit_bucket.key
        order by c.turn desc
        limit 1
        for update;
    else
        select
            c.ctid, c.xmin, c.used, c.special_reset_at,
            not c.overridden and c.counted_by = _hit_bucket.counted_by
        into v_ctid, v_xmin, v_part, v_reset, v_fits
        from pglimit.counters c
        where c.key = _hit_bucket.key
        order by c.turn desc;
    end if;
    if v_fits is not true or cost > burst then
        return null;
    end if;
    v_now := coalesce(at, clock_timestamp());
    -- what it lacks, in microseconds times hits
    v_ahead := (date_part('epoch', least(v_reset - v_now, fill)) * 1000000)::bigint;
    if v_ahead > 0 then
        v_level := v_ahead * max_hits - v_part;
    end if;
    v_level := v_level + cost * us;
    v_room := burst * us - v_level;
    if v_room < 0 then
        if limit_version is null then
            -- the call's own limit: a row may say otherwise, once any row has
            if pg_sequence_last_value('pglimit.special_limits') is not null then
                return null;
            end if;
        end if;
        return row(
            false, 'limit', burst, greatest((v_room + cost * us) / us, 0),
            (max_hits - 1 - v_room) / max_hits * interval '1 microsecond', v_reset,
            on_outage, limit_version, 0)::pglimit.hit_row;
    end if;
    v_part := (v_level + max_hits - 1) / max_hits;
    v_reset := v_now + v_part * interval '1 microsecond';
    v_part := v_part * max_hits - v_level;
    if v_ahead > 0 then
        update pglimit.counters c
        set used = v_part,
            special_reset_at = v_reset,
            window_start = v_reset - per,
            counted_at = v_now,
            changes = c.changes + 1
        where c.ctid = v_ctid
            and c.xmin = v_xmin
            and c.changes < 64;
    else
        -- full again: a new counter, to holds
        if limit_version is null then
            -- the limit may be counted elsewhere by now (see hit)
            if pg_sequence_last_value('pglimit.special_limits') is not null then
                return null;
            end if;
        end if;
        update pglimit.counters c
        set used = v_part,
            special_reset_at = v_reset,
            window_start = v_reset - per,
            counted_at = v_now,
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
            when not locked then pglimit._hit_bucket(
                key, cost, max_hits, burst, per, us, fill, on_outage, limit_version, counted_by, at,
                true)
        end;
    end if;
    return row(
        true, 'allowed', burst, v_room / us, null, v_reset, on_outage, limit_version,
        cost)::pglimit.hit_row;
end
$$;

comment on function pglimit._hit_bucket(
    text, bigint, bigint, bigint, interval, bigint, interval, text, bigint, bigint, timestamptz,
    boolean) is
    'internal: a hit of a token_bucket that is plain; null where _hit_special is to decide';

revoke all on function pglimit._hit_bucket(
    text, bigint, bigint, bigint, interval, bigint, interval, text, bigint, bigint, timestamptz,
    boolean)
from public;
