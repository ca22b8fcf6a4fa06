-- Reads every lane of a pool once and says what a claim of `weight` lanes finds: how many lanes
-- are live, when enough of them will have lapsed if nobody releases early, and which free lanes
-- may be taken. With k lanes claimable, k = cap - live lanes above k (the largest such k): so a
-- lowered cap holds although lanes above it are still live. The clock is read per row after the
-- snapshot was taken: a lane judged live was live at the snapshot's instant. Writes and locks
-- nothing. Each lane is one descent to its newest row; its dead turns are visited after every
-- eighth hand-over, see _sweep_lane. With lapsed_too what has lapsed counts as live too,
-- unless _retire_lapsed has marked it.
create or replace function pglimit._find_lanes(
    pool text,
    cap bigint,
    weight bigint,
    lapsed_too boolean default false,
    out in_use bigint,
    out free_at timestamptz,
    out top integer,
    out tids tid[],
    out turns bigint[]
)
returns record
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
begin
    select p.lane
    into top
    from pglimit.permits p
    where p.pool = _find_lanes.pool
    order by p.lane desc, p.turn desc
    limit 1;
    top := coalesce(top, 0);
    select
        count(*) filter (where l.live),
        (array_agg(l.expires_at order by l.expires_at) filter (where l.live))[
            greatest(
                count(*) filter (where l.live) + _find_lanes.weight - _find_lanes.cap, 0)::integer],
        array_agg(l.ctid order by l.pick) filter (
            where not l.live and l.lane + l.live_above <= _find_lanes.cap),
        array_agg(l.turn order by l.pick) filter (
            where not l.live and l.lane + l.live_above <= _find_lanes.cap)
    into in_use, free_at, tids, turns
    from (
        select
            n.lane,
            n.ctid,
            n.turn,
            n.expires_at,
            n.live,
            random() as pick,
            count(*) filter (where n.live) over (
                order by n.lane desc
                -- not "exclude current row", which counts from the start again at every row
                rows between unbounded preceding and 1 preceding) as live_above
        from (
            select
                g.lane,
                x.ctid,
                x.turn,
                x.expires_at,
                x.expires_at > clock_timestamp()
                    or (
                        _find_lanes.lapsed_too
                        and x.row_count > 0
                        and x.expires_at > '-infinity'
                    ) as live,
                case when x.changes >= 8 then (
                    select count(*)
                    from pglimit.permits d
                    where d.pool = _find_lanes.pool
                        and d.lane = g.lane
                        and d.turn >= x.swept_turn
                        and d.turn < x.turn
                ) end as swept
            from generate_series(1, top) g (lane)
            cross join lateral (
                select p.ctid, p.turn, p.expires_at, p.row_count, p.changes, p.swept_turn
                from pglimit.permits p
                where p.pool = _find_lanes.pool and p.lane = g.lane
                order by p.turn desc
                limit 1
            ) x
            offset 0
        ) n
        -- always true; without a use the planner would leave the sweep out
        where coalesce(n.swept, 0) >= 0
    ) l;
end
$$;

comment on function pglimit._find_lanes(text, bigint, bigint, boolean) is
    'internal: what a claim finds in a pool: lanes in use, free lanes, when there will be room';

revoke all on function pglimit._find_lanes(text, bigint, bigint, boolean) from public;
