-- Records hits of many keys and decides each for itself, as so many calls of hit in this order would.
-- Writes: counters, durable_counters (a row for each key that is allowed anything). Locks: see
-- _lock_counts; of keys that are refused everything nothing, unless they lost a race.
-- Safe under concurrency because it decides twice: by a plain read, and again once every key that
-- may be charged is locked, in one order for all calls, so that nobody waits in a circle.
-- What most calls consist of is decided for all keys by one statement: hits of plain limits whose
-- windows are open, and of which a key's are all allowed or all refused. The rest (a new key, a
-- window that has ended, an override, another algorithm or mode, a key whose last hits are among
-- these) is decided one by one by _hit_special, in the order given.
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
    v_now timestamptz;
    -- of each element
    v_keys text[];
    v_costs bigint[];
    v_sums numeric[];
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
    v_locked text[];
    v_tids tid[];
    -- of each key that was, by one statement
    v_done text[];
    v_used bigint[];
    v_until timestamptz[];
    v_ordinal integer;
begin
    if current_setting('transaction_isolation') <> 'read committed'
        or current_setting('transaction_read_only') <> 'off'
        or pg_current_xact_id_if_assigned() is not null
    then
        perform pglimit._check_transaction('hit_many');
    end if;
    perform pglimit._check_arrays(
        hit_many.limit_names, hit_many.subjects, hit_many.costs, hit_many.max_hits, hit_many.pers);

    -- a look at all of it. State 0: charged by one statement; 1: refused; 2: one by one
    v_looked := clock_timestamp();
    with element as (
        select
            u.ordinal,
            concat(v_tenant, e'\x1f', u.limit_name, e'\x1f', u.subject) collate "C" as key,
            case when hit_many.costs is null then 1 else u.cost end as cost,
            coalesce(u.max_hits, l.max_hits) as max_hits,
            l.on_outage,
            l.limit_version,
            c.used,
            c.reset_at,
            (coalesce(c.reset_at, c.special_reset_at) > v_looked + interval '1 s') is true as kept,
            (
                c.reset_at > v_looked
                and u.subject is not null
                and (hit_many.costs is null or u.cost > 0)
                and u.limit_name not like e'%\x1f%'
                and v_tenant not like e'%\x1f%'
                and case
                    when u.max_hits is null and u.per is null then l.plain
                    else u.max_hits >= 0 and u.per > '0 s' and u.per < '30 days'
                end
            ) is true as straight,
            -- a refusal of a call with its own limit has to look for a mode, once there is any
            u.max_hits is null or not v_special as mode_known
        from unnest(
            hit_many.limit_names, hit_many.subjects, hit_many.costs, hit_many.max_hits,
            hit_many.pers
        ) with ordinality u (limit_name, subject, cost, max_hits, per, ordinal)
        left join lateral (
            select r.max_hits, r.on_outage, r.limit_version, r.plain
            from pglimit.limits r
            where r.tenant in (v_tenant, '') and r.limit_name = u.limit_name
            order by r.tenant desc
            limit 1
        ) l on u.max_hits is null or u.per is null
        left join lateral (
            select n.used, n.reset_at, n.special_reset_at
            from pglimit.counters n
            where n.key = concat(
                v_tenant, e'\x1f', u.limit_name, e'\x1f', u.subject) collate "C"
            order by n.turn desc
            limit 1
        ) c on true
    ), look as (
        select
            e.*,
            sum(e.cost) over (partition by e.key order by e.ordinal) as so_far,
            sum(e.cost) over of_key as total,
            min(e.cost) over of_key > max(e.max_hits::numeric - e.used) over of_key as too_dear,
            bool_and(e.straight) over of_key
                and min(e.max_hits) over of_key = max(e.max_hits) over of_key as straight_key,
            bool_and(e.mode_known) over of_key as modes_known
        from element e
        window of_key as (partition by e.key)
    ), decided as (
        select
            l.*,
            case
                when l.straight_key and l.total <= l.max_hits::numeric - l.used then 0
                when l.straight_key and l.modes_known and l.too_dear then 1
                else 2
            end as state
        from look l
    )
    select
        array_agg(d.key order by d.ordinal),
        array_agg(d.cost order by d.ordinal),
        array_agg(d.so_far order by d.ordinal),
        array_agg(d.max_hits order by d.ordinal),
        array_agg(greatest(d.max_hits - d.used, 0) order by d.ordinal),
        array_agg(d.reset_at order by d.ordinal),
        array_agg(d.on_outage order by d.ordinal),
        array_agg(d.limit_version order by d.ordinal),
        array_agg(d.kept order by d.ordinal),
        array_agg(d.state order by d.ordinal),
        array_agg(d.key order by d.key) filter (where d.state = 0 and d.so_far = d.cost),
        array_agg(d.total order by d.key) filter (where d.state = 0 and d.so_far = d.cost),
        array_agg(d.max_hits order by d.key) filter (where d.state = 0 and d.so_far = d.cost),
        array_agg(d.key) filter (where d.state = 0 and d.so_far = d.cost and not d.kept)
    into
        v_keys, v_costs, v_sums, v_maxima, v_lefts, v_resets, v_outages, v_versions, v_kept,
        v_states, v_charged, v_totals, v_quotas, v_fresh
    from decided d;
    v_charged := coalesce(v_charged, array[]::text[]);

    -- a look at the others
    if 2 = any (v_states) then
        for v_ordinal in 1..cardinality(v_states) loop
            continue when v_states[v_ordinal] <> 2;
            perform pglimit._check_hit(
                hit_many.limit_names[v_ordinal], hit_many.subjects[v_ordinal],
                hit_many.max_hits[v_ordinal], hit_many.pers[v_ordinal], v_costs[v_ordinal],
                null, null, v_tenant);
            v_answer := pglimit._hit_special(
                hit_many.limit_names[v_ordinal], hit_many.subjects[v_ordinal],
                hit_many.max_hits[v_ordinal], hit_many.pers[v_ordinal],
                greatest(v_costs[v_ordinal], 1), null, null, v_tenant, look_only => true);
            v_answers[v_ordinal] := v_answer;
            if v_answer.allowed and v_answer.reason <> 'off' and v_costs[v_ordinal] > 0 then
                v_single := v_single || v_keys[v_ordinal];
                if not v_kept[v_ordinal] then
                    v_fresh := v_fresh || v_keys[v_ordinal];
                end if;
            end if;
        end loop;
        v_durable := v_special and exists (
            select
            from pglimit.limits l
            where l.tenant in (v_tenant, '')
                and l.limit_name = any (hit_many.limit_names)
                and l.durable);
    end if;

    if cardinality(v_charged) + cardinality(v_single) > 0 then
        v_locked := v_charged;
        if cardinality(v_single) > 0 then
            select
                array_agg(k.key order by k.key collate "C"),
                array_agg(k.total order by k.key collate "C"),
                array_agg(k.quota order by k.key collate "C")
            into v_locked, v_totals, v_quotas
            from (
                select c.key, c.total, c.quota
                from unnest(v_charged, v_totals, v_quotas) c (key, total, quota)
                union all
                select distinct s.key collate "C", null::bigint, null::bigint
                from unnest(v_single) s (key)
            ) k;
        end if;
        v_tids := pglimit._lock_counts(v_locked, v_fresh, v_durable);

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

        -- what is left, in the order given; every row and key that it needs is locked
        if cardinality(v_single) > 0
            or cardinality(v_charged) > coalesce(cardinality(v_done), 0)
        then
            for v_ordinal in
                select u.ordinal
                from unnest(v_keys, v_states) with ordinality u (key, state, ordinal)
                where u.state = 0 and not (u.key = any (coalesce(v_done, '{}')))
                    or u.state = 2 and u.key = any (v_single)
                order by u.ordinal
            loop
                v_answers[v_ordinal] := pglimit._hit_special(
                    hit_many.limit_names[v_ordinal], hit_many.subjects[v_ordinal],
                    hit_many.max_hits[v_ordinal], hit_many.pers[v_ordinal],
                    greatest(v_costs[v_ordinal], 1), null, null, v_tenant,
                    look_only => v_costs[v_ordinal] = 0);
                v_states[v_ordinal] := 2;
            end loop;
        end if;
    end if;

    return query
    select
        u.ordinal::integer,
        case u.state when 2 then u.allowed else u.state = 0 end,
        case
            when u.state = 2 then u.reason
            when u.state = 0 then 'allowed'
            when u.cost > u.max_hits then 'never'
            else 'limit'
        end,
        case u.state when 2 then u.quota else u.max_hits end,
        case u.state
            when 2 then u.remaining
            when 1 then u.was_left
            else (u.max_hits - d.used - u.so_far)::bigint
        end,
        case u.state
            when 2 then u.retry_after
            when 1 then case when u.cost <= u.max_hits then u.was_reset - v_looked end
        end,
        case u.state when 2 then u.reset_at when 1 then u.was_reset else d.reset_at end,
        case u.state when 2 then u.on_outage else u.outage end,
        case u.state when 2 then u.limit_version else u.version end,
        case u.state when 2 then u.charged when 1 then 0 else u.cost end
    from unnest(
        v_keys, v_costs, v_sums, v_maxima, v_lefts, v_resets, v_outages, v_versions, v_states,
        v_answers
    ) with ordinality u (
        key, cost, so_far, max_hits, was_left, was_reset, outage, version, state, allowed, reason,
        quota, remaining, retry_after, reset_at, on_outage, limit_version, charged, ordinal)
    left join unnest(v_done, v_used, v_until) d (key, used, reset_at)
        on u.state = 0 and d.key = u.key
    order by u.ordinal;
end
$$;

comment on function pglimit.hit_many(
    text[], text[], bigint[], bigint[], interval[], text) is
    'Records hits of many keys and decides each for itself, as so many calls of hit would. '
    'One row for each, in order; 1,000 at most. PGL01 invalid argument, PGL02 unknown limit, '
    'PGL03 wrong transaction, 55P03 after 1 s of waiting.';

revoke all on function pglimit.hit_many(
    text[], text[], bigint[], bigint[], interval[], text) from public;
