-- Records hits of many keys and decides each for itself, as so many calls of hit in this order
-- would.
-- Writes: counters, durable_counters (a row for each key that is allowed anything). Of keys that
-- are refused everything nothing, unless they lost a race.
-- The usual call has every key once, each with a row that hit would go on with by a straight way,
-- or begin a window of. One statement looks at all of it and charges what is allowed. It locks no
-- more than those rows, in the order of keys, and what it lost while it waited _hit_again decides,
-- on rows locked by then. All else (a new key, an override, a mode, a key that comes twice, a
-- window of the calendar that has ended) looks first, locks all that may be charged (see
-- _lock_counts), and decides again: by one statement where it can, else one by one by _hit_special,
-- in the order given.
-- Safe under concurrency because all calls lock in one order, so that nobody waits in a circle, and
-- nothing is charged but by a row that is as it was seen, or is locked.
create or replace function pglimit.hit_many(
    limit_names text[],
    subjects text[],
    costs bigint[] default null,
    max_hits bigint[] default null,
    pers interval[] default null,
    tenant text default null
)
returns setof pglimit.hit_many_row
language plpgsql
volatile
parallel unsafe
called on null input
security definer
rows 100
set search_path = pg_catalog, pg_temp
set row_security = on
set lock_timeout = '1s'
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_tenant text := coalesce(hit_many.tenant, current_setting('pglimit.tenant', true), '');
    v_special boolean := pg_sequence_last_value('pglimit.special_limits') is not null;
    v_looked timestamptz;
    v_stays timestamptz;
    v_now timestamptz;
    -- of each element, in the order of the keys
    v_places integer[];
    v_keys text[];
    v_costs bigint[];
    v_sums bigint[];
    v_maxima bigint[];
    v_lefts bigint[];
    v_resets timestamptz[];
    v_outages text[];
    v_versions bigint[];
    v_kept boolean[];
    v_states integer[];
    v_answers pglimit.hit_row[];
    v_answer pglimit.hit_row;
    -- of each key that may be charged
    v_charged text[];
    v_fresh text[];
    v_totals bigint[];
    v_quotas bigint[];
    v_single text[] := array[]::text[];
    v_durable boolean := false;
    v_tids tid[];
    -- of each key that was, by one statement
    v_done text[];
    v_used bigint[];
    v_until timestamptz[];
    v_count integer := cardinality(hit_many.limit_names);
    v_first integer;
    v_last integer;
    v_total numeric;
    v_least bigint;
    v_same boolean;
    v_known boolean;
begin
    if current_setting('transaction_isolation') <> 'read committed'
        or current_setting('transaction_read_only') <> 'off'
        or pg_current_xact_id_if_assigned() is not null
    then
        perform pglimit._check_transaction('hit_many');
    end if;
    perform pglimit._check_arrays(
        hit_many.limit_names, hit_many.subjects, hit_many.costs, hit_many.max_hits, hit_many.pers);

    -- the usual call. State 0: charged; 1: refused; 2: not usual. `usual` reads all of `looked`
    -- before the first row is locked. By one snapshot a row that was found by its key is found by
    -- its ctid too, or is waited for and then passed over, but locked. A row that purge may take
    -- away meanwhile is left to the other way.
    -- No sort at the end: joins with `looked` outside keep the order of places
    v_looked := clock_timestamp();
    v_stays := v_looked + interval '1 s' - (
        select i.purge_after from pglimit.installation i where i.singleton);
    return query
    with rule as materialized (
        select n.limit_name, l.*
        from (
            select distinct u.limit_name
            from unnest(hit_many.limit_names) u (limit_name)
            where hit_many.max_hits is null
                or hit_many.pers is null
                or array_position(hit_many.max_hits, null) > 0
                or array_position(hit_many.pers, null) > 0
        ) n
        cross join lateral (
            select
                r.max_hits, r.per, r.on_outage, r.limit_version,
                nullif(r.straight_us, 0) as us, r.straight_burst as burst,
                r.straight_fill as fill, r.algorithm = 'calendar' as calendar,
                r.plain or r.straight_us is not null as straight
            from pglimit.limits r
            where r.tenant in (v_tenant, '') and r.limit_name = n.limit_name
            order by r.tenant desc
            limit 1
        ) l
    ), looked as materialized (
        select
            u.place,
            u.key,
            u.cost,
            coalesce(u.burst, u.max_hits) as quota,
            u.on_outage,
            u.limit_version,
            c.tid,
            c.xmin,
            x.room,
            x.wait,
            x.used,
            x.previous,
            x.window_start,
            x.reset_at,
            case when u.burst > 0 then v_looked end as counted_at,
            not c.open as begun,
            u.us is not null as stamped,
            case
                when u.straight is not true or c.open is null or x.room is null then 2
                when not c.open and u.calendar then 2
                -- a call with its own limit has to look for a mode, once there is any, where it is
                -- refused or a window begins
                when u.given and v_special and (not c.open or u.cost > x.room) then 2
                when u.cost > x.room then 1
                when c.open_until > v_stays then 0
                else 2
            end as state
        from (
            select
                a.place,
                a.cost,
                a.given,
                (v_tenant || e'\x1f' || a.limit_name || e'\x1f' || a.subject) collate "C" as key,
                coalesce(a.max_hits, l.max_hits) as max_hits,
                -- a day of a call is 24 hours; of what is far too long there is no product
                case
                    when not a.given then l.per
                    when a.per > '0 s' and a.per < '30 days'
                        then date_part('epoch', a.per) * interval '1 second'
                end as per,
                l.on_outage,
                l.limit_version,
                l.us,
                l.burst,
                l.fill,
                coalesce(l.calendar, false) as calendar,
                a.cost > 0
                    and case
                        when a.given then
                            a.max_hits >= 0
                            and a.per > '0 s'
                            and a.per < '30 days'
                            -- nor any months, as _fixed_interval has it
                            and substr(interval_send(a.per), 13) = e'\\x00000000'
                            -- a separator inside a name would meet another key
                            and a.limit_name not like e'%\x1f%'
                        else a.max_hits is null and a.per is null and l.straight
                    end as straight
            from (
                select
                    g.place,
                    hit_many.limit_names[g.place] as limit_name,
                    hit_many.subjects[g.place] as subject,
                    case when hit_many.costs is null then 1 else hit_many.costs[g.place] end
                        as cost,
                    hit_many.max_hits[g.place] as max_hits,
                    hit_many.pers[g.place] as per,
                    hit_many.max_hits[g.place] is not null and hit_many.pers[g.place] is not null
                        as given
                from (select generate_series(1, v_count) as place offset 0) g
                offset 0
            ) a
            left join rule l on l.limit_name = a.limit_name and not a.given
            offset 0
        ) u
        left join lateral (
            select
                n.ctid as tid, n.xmin, n.used, n.previous, n.window_start,
                case when u.us > 0 then n.special_reset_at else n.reset_at end as open_until,
                case when u.us > 0 then n.special_reset_at else n.reset_at end > v_looked as open,
                not n.overridden and n.counted_by = u.limit_version as fits
            from pglimit.counters n
            where n.key = u.key
            order by n.turn desc
            limit 1
        ) c on true
        left join lateral (
            -- windows
            select
                greatest(u.max_hits, -1) - d.used as room,
                case when u.cost <= u.max_hits then c.open_until - v_looked end as wait,
                case
                    when u.cost <= greatest(u.max_hits, -1) - d.used then d.used + u.cost
                end as used,
                c.previous,
                case when c.open then c.window_start else v_looked end as window_start,
                case
                    when c.open then c.open_until
                    when u.cost <= u.max_hits then v_looked + u.per
                end as reset_at
            from (
                select case when c.open then c.used else 0 end as used
                where u.us is null
                offset 0
            ) d
            union all
            -- as _hit_sliding
            select
                d.room,
                case
                    when u.cost <= d.room or u.cost > u.max_hits then null
                    when u.max_hits - u.cost >= d.used then least(
                        c.open_until - v_looked,
                        (d.rest - (u.max_hits - u.cost - d.used) * u.us / d.previous)
                            * interval '1 microsecond')
                    else least(
                        c.open_until - v_looked,
                        (d.rest + u.us - (u.max_hits - u.cost) * u.us / d.used)
                            * interval '1 microsecond')
                end,
                case when u.cost <= d.room then d.used + u.cost end,
                d.previous,
                d.window_start,
                case
                    when u.cost <= d.room then greatest(c.open_until, v_looked + u.per)
                    when c.open then c.open_until
                end
            from (
                select
                    e.*,
                    u.max_hits - e.used - (e.previous * e.rest + u.us - 1) / u.us as room
                from (
                    select
                        case when c.open and r.rest > 0 then c.used else 0 end as used,
                        case
                            when not c.open then 0
                            when r.rest > 0 then c.previous
                            else c.used
                        end as previous,
                        case
                            when not c.open then v_looked
                            when r.rest > 0 then c.window_start
                            else c.window_start + u.per
                        end as window_start,
                        case when r.rest > 0 then r.rest else r.rest + u.us end as rest
                    from (
                        select u.us - case
                            when c.open then (
                                date_part('epoch', greatest(v_looked - c.window_start, '0 s'))
                                * 1000000)::bigint
                            else 0
                        end as rest
                        where u.us > 0
                            and u.burst is null
                            and c.fits
                            and u.cost > 0
                        offset 0
                    ) r
                    where r.rest > -u.us
                    offset 0
                ) e
                offset 0
            ) d
            union all
            -- as _hit_bucket
            select
                (u.burst * u.us - d.level + d.cost * u.us) / u.us,
                case
                    when u.burst * u.us < d.level and u.cost <= u.burst then
                        (u.max_hits - 1 - (u.burst * u.us - d.level)) / u.max_hits
                        * interval '1 microsecond'
                end,
                d.elapsed * u.max_hits - d.level,
                c.previous,
                v_looked + d.elapsed * interval '1 microsecond' - u.per,
                case
                    when u.burst * u.us >= d.level then
                        v_looked + d.elapsed * interval '1 microsecond'
                    when c.open then c.open_until
                end
            from (
                select e.level, e.cost, (e.level + u.max_hits - 1) / u.max_hits as elapsed
                from (
                    select
                        case
                            when c.open then
                                (date_part('epoch', least(c.open_until - v_looked, u.fill))
                                    * 1000000)::bigint * u.max_hits - c.used
                            else 0
                        end + least(u.cost, u.burst + 1) * u.us as level,
                        least(u.cost, u.burst + 1) as cost
                    where u.burst > 0
                        and u.us > 0
                        and c.fits
                        and u.cost > 0
                    offset 0
                ) e
                offset 0
            ) d
        ) x on true
    ), usual as materialized (
        select
            max(d.state) < 2 and count(*) = v_count and v_tenant not like e'%\x1f%' as yes,
            count(*) filter (where d.state = 0) as charged
        from (select max(l.state) as state from looked l group by l.tid) d
    ), done as (
        update pglimit.counters c
        set turn = case
                when c.changes < 64 then c.turn
                else greatest(c.turn + 1, (date_part('epoch', clock_timestamp()) * 1000000)::bigint)
            end,
            changes = case when c.changes < 64 then c.changes + 1 else 0 end,
            used = k.used,
            previous = k.previous,
            window_start = k.window_start,
            reset_at = case when not k.stamped then k.reset_at end,
            special_reset_at = case when k.stamped then k.reset_at end,
            counted_at = k.counted_at,
            open_since = case when k.begun and k.stamped then v_looked else c.open_since end,
            bucket_sums = case when k.begun and k.stamped then '{0, 0, 0}' else c.bucket_sums end,
            shadow_refused = case when k.begun then 0 else c.shadow_refused end
        from (
            select
                l.tid, l.xmin, l.used, l.previous, l.window_start, l.reset_at, l.counted_at,
                l.begun, l.stamped, l.place
            from looked l
            where l.state = 0 and (select u.yes from usual u)
            order by l.key
        ) k
        where c.ctid = k.tid
            and c.xmin = k.xmin
            and (k.begun or k.stamped or c.reset_at > clock_timestamp())
        returning k.place
    ), again as materialized (
        select pglimit._hit_again(
            hit_many.limit_names, hit_many.subjects, hit_many.costs, hit_many.max_hits,
            hit_many.pers, v_tenant, array_agg(l.place), array_agg(l.quota)) as answers
        from looked l
        where l.state = 0 and not l.place = any (array(select d.place from done d))
    )
    select
        f.place,
        case when f.lost then (f.answer).allowed else f.state = 0 end,
        case
            when f.lost then (f.answer).reason
            when f.state = 0 then 'allowed'
            when f.cost > f.quota then 'never'
            else 'limit'
        end,
        case when f.lost then (f.answer).quota else f.quota end,
        case
            when f.lost then (f.answer).remaining
            when f.state = 0 then f.room - f.cost
            else greatest(f.room, 0)
        end,
        case
            when f.lost then (f.answer).retry_after
            when f.state = 1 then f.wait
        end,
        case when f.lost then (f.answer).reset_at else f.reset_at end,
        case when f.lost then coalesce((f.answer).on_outage, f.on_outage) else f.on_outage end,
        case
            when f.lost then coalesce((f.answer).limit_version, f.limit_version)
            else f.limit_version
        end,
        case
            when f.lost then (f.answer).charged
            when f.state = 0 then f.cost
            else 0
        end
    from (
        select
            l.*,
            l.state = 0
                and (select count(*) from done d) < (select u.charged from usual u)
                and ((select g.answers from again g)[l.place]).allowed is not null as lost,
            case
                when (select count(*) from done d) < (select u.charged from usual u)
                then (select g.answers from again g)[l.place]
            end as answer
        from looked l
        where (select u.yes from usual u)
        offset 0
    ) f;
    if found or v_count = 0 then
        return;
    end if;

    -- a look at all of it, in the order of keys. State 0: charged by one statement; 1: refused; 2:
    -- one by one. Of a key that comes more than once 3: straight; 4: that, but if refused it has to
    -- look for a mode; 5: not
    v_looked := clock_timestamp();
    with rule as materialized (
        select n.limit_name, l.max_hits, l.on_outage, l.limit_version, l.straight
        from (
            select distinct u.limit_name
            from unnest(hit_many.limit_names, hit_many.max_hits, hit_many.pers)
                u (limit_name, max_hits, per)
            where u.max_hits is null or u.per is null
        ) n
        cross join lateral (
            select r.max_hits, r.on_outage, r.limit_version, r.plain as straight
            from pglimit.limits r
            where r.tenant in (v_tenant, '') and r.limit_name = n.limit_name
            order by r.tenant desc
            limit 1
        ) l
    ), element as (
        select
            u.place,
            u.key,
            u.cost,
            coalesce(u.max_hits, l.max_hits) as max_hits,
            l.on_outage,
            l.limit_version,
            c.used,
            c.reset_at,
            (coalesce(c.reset_at, c.special_reset_at) > v_looked + interval '1 s') is true as kept,
            (
                c.reset_at > v_looked
                and v_tenant not like e'%\x1f%'
                and u.cost > 0
                and not u.nameless
                -- a separator inside a name would meet another key
                and u.limit_name not like e'%\x1f%'
                and case
                    when u.max_hits is null and u.per is null then l.straight
                    else u.max_hits >= 0 and u.per > '0 s' and u.per < '30 days'
                end
            ) is true as straight,
            -- a refusal of a call with its own limit has to look for a mode, once there is any
            u.max_hits is null or not v_special as mode_known
        from (
            select
                a.*,
                a.max_hits is not null and a.per is not null as given,
                (v_tenant || e'\x1f' || a.limit_name || e'\x1f' || a.subject) collate "C" as key
            from (
                select
                    g.place,
                    -- a key all the same: it is named in its turn
                    coalesce(hit_many.limit_names[g.place], '') as limit_name,
                    coalesce(hit_many.subjects[g.place], '') as subject,
                    hit_many.limit_names[g.place] is null or hit_many.subjects[g.place] is null
                        as nameless,
                    case when hit_many.costs is null then 1 else hit_many.costs[g.place] end
                        as cost,
                    hit_many.max_hits[g.place] as max_hits,
                    hit_many.pers[g.place] as per
                from (select generate_series(1, v_count) as place offset 0) g
                offset 0
            ) a
            offset 0
        ) u
        left join rule l on l.limit_name = u.limit_name and not u.given
        left join lateral (
            select n.used, n.reset_at, n.special_reset_at
            from pglimit.counters n
            where n.key = u.key
            order by n.turn desc
            limit 1
        ) c on true
    ), decided as (
        select
            e.*,
            case
                when e.key = lag(e.key) over in_order or e.key = lead(e.key) over in_order
                then case when not e.straight then 5 when e.mode_known then 3 else 4 end
                when e.straight and e.cost <= e.max_hits - e.used then 0
                when e.straight and e.mode_known then 1
                else 2
            end as state
        from element e
        window in_order as (order by e.key, e.place)
        order by e.key, e.place
    )
    select
        array_agg(d.place),
        array_agg(d.key),
        array_agg(d.cost),
        array_agg(d.max_hits),
        array_agg(greatest(d.max_hits, -1) - d.used),
        array_agg(d.reset_at),
        array_agg(d.on_outage),
        array_agg(d.limit_version),
        array_agg(d.kept),
        array_agg(d.state),
        array_agg(d.key) filter (where d.state = 0 and not d.kept)
    into
        v_places, v_keys, v_costs, v_maxima, v_lefts, v_resets, v_outages, v_versions, v_kept,
        v_states, v_fresh
    from decided d;
    v_sums := v_costs;
    v_charged := v_keys;
    v_totals := v_costs;
    v_quotas := v_maxima;
    if 0 <> any (v_states) then
        select array_agg(u.key), array_agg(u.cost), array_agg(u.max_hits)
        into v_charged, v_totals, v_quotas
        from unnest(v_keys, v_costs, v_maxima, v_states) u (key, cost, max_hits, state)
        where u.state = 0;
    end if;
    v_count := coalesce(cardinality(v_states), 0);

    -- keys that come more than once: all of a key's hits are allowed, or all refused, or one by one
    if 2 < any (v_states) then
        v_first := 1;
        while v_first <= v_count loop
            if v_states[v_first] < 3 then
                v_first := v_first + 1;
                continue;
            end if;
            v_last := v_first;
            v_total := 0;
            v_least := v_costs[v_first];
            v_same := true;
            v_known := true;
            loop
                v_total := v_total + v_costs[v_last];
                v_least := least(v_least, v_costs[v_last]);
                v_same := v_same
                    and v_states[v_last] < 5
                    and v_maxima[v_last] = v_maxima[v_first]
                    and v_total <= 9223372036854775807;
                v_known := v_known and v_states[v_last] = 3;
                if v_same then
                    v_sums[v_last] := v_total;
                end if;
                exit when v_last = v_count or v_keys[v_last + 1] <> v_keys[v_first];
                v_last := v_last + 1;
            end loop;
            v_states[v_first] := case
                when v_same and v_total <= v_lefts[v_first] then 0
                when v_same and v_known and v_least > v_lefts[v_first] then 1
                else 2
            end;
            if v_states[v_first] = 0 then
                v_charged := v_charged || v_keys[v_first];
                v_totals := v_totals || v_total::bigint;
                v_quotas := v_quotas || v_maxima[v_first];
                if not v_kept[v_first] then
                    v_fresh := v_fresh || v_keys[v_first];
                end if;
            end if;
            for v_other in v_first + 1..v_last loop
                v_states[v_other] := v_states[v_first];
            end loop;
            v_first := v_last + 1;
        end loop;
    end if;

    -- a look at the others
    if 2 = any (v_states) then
        v_answers := array_fill(v_answer, array[v_count]);
        for v_at in 1..v_count loop
            continue when v_states[v_at] <> 2;
            perform pglimit._check_hit(
                hit_many.limit_names[v_places[v_at]], hit_many.subjects[v_places[v_at]],
                hit_many.max_hits[v_places[v_at]], hit_many.pers[v_places[v_at]],
                v_costs[v_at], null, null, v_tenant);
            v_answer := pglimit._hit_special(
                hit_many.limit_names[v_places[v_at]], hit_many.subjects[v_places[v_at]],
                hit_many.max_hits[v_places[v_at]], hit_many.pers[v_places[v_at]],
                greatest(v_costs[v_at], 1), null, null, v_tenant, look_only => true);
            v_answers[v_at] := v_answer;
            if v_answer.allowed and v_answer.reason <> 'off' and v_costs[v_at] > 0
                and v_keys[v_at] is distinct from v_single[cardinality(v_single)]
            then
                v_single := v_single || v_keys[v_at];
                if not v_kept[v_at] then
                    v_fresh := v_fresh || v_keys[v_at];
                end if;
            end if;
        end loop;
        v_durable := v_special and exists (
            select
            from pglimit.limits l
            where l.tenant in (v_tenant, '')
                and l.limit_name = any (hit_many.limit_names)
                and l.durable);
        if v_durable then
            -- that a key has a counter does not say that it has a logged one
            v_fresh := v_fresh || v_single;
        end if;
    end if;

    v_count := coalesce(cardinality(v_charged), 0);
    if v_count + cardinality(v_single) > 0 then
        if v_sums <> v_costs or cardinality(v_single) > 0 then
            select
                array_agg(k.key order by k.key collate "C"),
                array_agg(k.total order by k.key collate "C"),
                array_agg(k.quota order by k.key collate "C")
            into v_charged, v_totals, v_quotas
            from unnest(v_charged || v_single, v_totals, v_quotas) k (key, total, quota);
        end if;
        v_tids := pglimit._lock_counts(v_charged, v_fresh, v_durable);

        -- the clock again, after the wait; a row that was stamped meanwhile has no reset_at
        v_now := clock_timestamp();
        with done as (
            update pglimit.counters c
            set turn = case
                    when c.changes < 64 then c.turn
                    else greatest(c.turn + 1, (date_part('epoch', v_now) * 1000000)::bigint)
                end,
                changes = case when c.changes < 64 then c.changes + 1 else 0 end,
                used = c.used + k.total
            from unnest(v_tids, v_totals, v_quotas) k (tid, total, quota)
            where c.ctid = k.tid and c.reset_at > v_now and c.used <= k.quota - k.total
            returning c.key, c.used - k.total as used, c.reset_at
        )
        select array_agg(d.key), array_agg(d.used), array_agg(d.reset_at)
        into v_done, v_used, v_until
        from done d;

        -- what is left; every row and key that it needs is locked
        if cardinality(v_single) > 0 or v_count > coalesce(cardinality(v_done), 0) then
            v_answers := coalesce(v_answers, array_fill(v_answer, array[cardinality(v_states)]));
            for v_at in 1..cardinality(v_states) loop
                if v_states[v_at] = 0 and not v_keys[v_at] = any (coalesce(v_done, '{}'))
                    or v_states[v_at] = 2 and v_keys[v_at] = any (v_single)
                then
                    v_answers[v_at] := pglimit._hit_special(
                        hit_many.limit_names[v_places[v_at]], hit_many.subjects[v_places[v_at]],
                        hit_many.max_hits[v_places[v_at]], hit_many.pers[v_places[v_at]],
                        greatest(v_costs[v_at], 1), null, null, v_tenant,
                        look_only => v_costs[v_at] = 0);
                    v_states[v_at] := 2;
                end if;
            end loop;
        end if;
    end if;

    return query
    select
        u.place,
        case u.state when 2 then (u.answer).allowed else u.state = 0 end,
        case
            when u.state = 2 then (u.answer).reason
            when u.state = 0 then 'allowed'
            when u.cost > u.max_hits then 'never'
            else 'limit'
        end,
        case u.state when 2 then (u.answer).quota else u.max_hits end,
        case u.state
            when 2 then (u.answer).remaining
            when 1 then greatest(u.was_left, 0)
            else u.max_hits - d.used - v_sums[u.at]
        end,
        case u.state
            when 2 then (u.answer).retry_after
            when 1 then case when u.cost <= u.max_hits then u.was_reset - v_looked end
        end,
        case u.state
            when 2 then (u.answer).reset_at
            when 1 then u.was_reset
            else d.reset_at
        end,
        case u.state when 2 then (u.answer).on_outage else v_outages[u.at] end,
        case u.state when 2 then (u.answer).limit_version else v_versions[u.at] end,
        case u.state when 2 then (u.answer).charged when 1 then 0 else u.cost end
    from (
        select
            g.at,
            v_places[g.at] as place,
            v_keys[g.at] as key,
            v_costs[g.at] as cost,
            v_maxima[g.at] as max_hits,
            v_lefts[g.at] as was_left,
            v_resets[g.at] as was_reset,
            v_states[g.at] as state,
            v_answers[g.at] as answer
        from (select generate_series(1, cardinality(v_places)) as at offset 0) g
        offset 0
    ) u
    left join unnest(v_done, v_used, v_until) d (key, used, reset_at)
        on u.state = 0 and d.key = u.key
    order by u.place;
end
$$;

comment on function pglimit.hit_many(
    text[], text[], bigint[], bigint[], interval[], text) is
    'Records hits of many keys and decides each for itself, as so many calls of hit would. '
    'One row for each, in order; 1,000 at most. PGL01 invalid argument, PGL02 unknown limit, '
    'PGL03 wrong transaction, 55P03 after 1 s of waiting.';

revoke all on function pglimit.hit_many(
    text[], text[], bigint[], bigint[], interval[], text) from public;
