-- Records hits and claims permits, over any mix of limits and endpoints, all of them or none.
-- Writes: counters, durable_counters, permits, as hit and claim_permit do. Locks, in one order for
-- all calls: rates before permits; of rates creation locks by number, then rows by key (see
-- _lock_counts); of permits pools holder, endpoint, installation, and of each kind by the number of
-- their creation locks, then by name; a pool's lanes as in claim_permit, without waiting for them.
-- Before all, where there are rates and permits, the table of creation locks, as any of its rows
-- would: a block of every limit keeps it from others while it stamps counters.
-- Who wants the same key or pool twice, wants the sum.
-- A look comes first: where anything is refused, nothing is locked or written, and all that is
-- refused is told. What fits is then locked, but not yet written; where that takes longer than
-- somebody else, it is decided again. Only once all of it is locked and fits is the first of it
-- written: so nothing has to be undone, and there is no subtransaction. A rate is looked at again
-- when its row is another than before the look, and is counted then as of that instant.
create or replace function pglimit.admit(wants jsonb, tenant text default null)
returns setof pglimit.admit_row
language plpgsql
volatile
parallel unsafe
called on null input
security definer
rows 10
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
    v_tenant text := coalesce(admit.tenant, current_setting('pglimit.tenant', true), '');
    v_want record;
    v_count integer := 0;
    v_rows pglimit.admit_row[];
    v_row pglimit.admit_row;
    v_refused boolean := false;
    v_now timestamptz;
    v_hit pglimit.hit_row;
    v_at integer;
    -- rates, one for each key, in the order of keys; of each want the rate that it is a part of
    v_rate_of integer[];
    v_rates integer := 0;
    v_keys text[] := array[]::text[];
    v_limits text[];
    v_subjects text[];
    v_costs numeric[];
    v_maxima bigint[];
    v_pers interval[];
    v_algorithms text[];
    v_bursts bigint[];
    v_fresh text[];
    v_seen tid[];
    v_tids tid[];
    v_hits pglimit.hit_row[];
    v_durable boolean := false;
    -- permits: their wants; and for each want, pool 1 to 3 at 3 * want - 2 to 3 * want
    v_claims integer[] := array[]::integer[];
    v_terms record;
    v_caps bigint[];
    v_weights bigint[];
    v_lengths interval[];
    v_longest interval[];
    v_modes text[];
    v_fair boolean[];
    v_notes jsonb[];
    v_beyond boolean[];
    v_pool_of integer[];
    v_weight bigint;
    -- pools
    v_name text;
    v_pool integer;
    v_pools text[] := array[]::text[];
    v_kinds integer[];
    v_pool_caps bigint[];
    v_firm bigint[];
    v_shadow bigint[];
    v_in_use bigint[];
    v_free_at timestamptz[];
    v_full boolean[];
    v_is_full boolean;
    v_room bigint[];
    v_taken tid[];
    v_lanes tid[] := array[]::tid[];
    v_next integer[];
    v_found record;
    v_for text;
begin
    if current_setting('transaction_isolation') <> 'read committed'
        or current_setting('transaction_read_only') <> 'off'
        or pg_current_xact_id_if_assigned() is not null
    then
        perform pglimit._check_transaction('admit');
    end if;
    perform pglimit._check_wants(admit.wants);

    -- what is wanted: rates in the order of keys, then permits
    for v_want in
        select
            j.place::integer as place,
            x.*,
            concat(v_tenant, e'\x1f', x."limit", e'\x1f', x.subject) collate "C" as key
        from jsonb_array_elements(admit.wants) with ordinality j (value, place)
        cross join lateral jsonb_to_record(j.value) x (
            "limit" text, subject text, cost bigint, max_hits bigint, per interval, algorithm text,
            burst bigint, endpoint text, holder text, weight bigint, holder_cap bigint,
            endpoint_cap bigint, installation_cap bigint, lease interval, note jsonb)
        order by
            j.value ? 'endpoint',
            -- those that are granted beyond the caps wait for each other's creation locks
            hashtextextended(concat(v_tenant, e'\x1f\x1fb', x.endpoint), 0) & 16383,
            key,
            place
    loop
        v_count := v_count + 1;
        v_row := null;
        v_row.ordinal := v_want.place;
        v_row.limit_name := v_want."limit";
        v_row.subject := v_want.subject;
        v_row.endpoint := v_want.endpoint;
        v_row.holder := v_want.holder;
        if v_want.endpoint is null then
            v_want.cost := coalesce(v_want.cost, 1);
            perform pglimit._check_hit(
                v_want."limit", v_want.subject, v_want.max_hits, v_want.per, v_want.cost,
                v_want.algorithm, v_want.burst, v_tenant);
            if v_want.cost = 0 then
                raise exception using
                    errcode = 'PGL01',
                    message = format('want %s has a cost of 0', v_want.place),
                    detail = 'What is admitted is counted, and so is 1 or more.',
                    hint = 'To look without counting call pglimit.peek.';
            end if;
            if v_rates = 0 or v_keys[v_rates] <> v_want.key then
                v_rates := v_rates + 1;
                v_keys[v_rates] := v_want.key;
                v_limits[v_rates] := v_want."limit";
                v_subjects[v_rates] := v_want.subject;
                v_costs[v_rates] := 0;
                v_maxima[v_rates] := v_want.max_hits;
                v_pers[v_rates] := v_want.per;
                v_algorithms[v_rates] := v_want.algorithm;
                v_bursts[v_rates] := v_want.burst;
            elsif (v_maxima[v_rates], v_pers[v_rates], v_algorithms[v_rates], v_bursts[v_rates])
                is distinct from
                (v_want.max_hits, v_want.per, v_want.algorithm, v_want.burst)
            then
                raise exception using
                    errcode = 'PGL01',
                    message = format('want %s has another limit than one before', v_want.place),
                    detail = 'Wants of one subject of one limit are summed.',
                    hint = 'Give both the same max_hits, per, algorithm and burst.';
            end if;
            v_costs[v_rates] := least(v_costs[v_rates] + v_want.cost, 9223372036854775807);
            v_rate_of[v_count] := v_rates;
            v_weights[v_count] := v_want.cost;
        else
            v_want.weight := coalesce(v_want.weight, 1);
            perform pglimit._check_claim(
                v_want.endpoint, v_want.holder, v_want.holder_cap, v_want.endpoint_cap,
                v_want.installation_cap, v_want.lease, v_want.weight, v_want.note, v_tenant);
            v_terms := pglimit._claim_terms(
                v_tenant, v_want.endpoint, v_want.holder, v_want.holder_cap, v_want.endpoint_cap,
                v_want.installation_cap, v_want.lease);
            v_claims := v_claims || v_count;
            v_weights[v_count] := v_want.weight;
            v_notes[v_count] := v_want.note;
            v_lengths[v_count] := v_terms.length;
            v_longest[v_count] := v_terms.longest;
            v_modes[v_count] := v_terms.mode;
            v_fair[v_count] := v_terms.fair;
            v_beyond[v_count] := v_terms.mode = 'off';
            v_row.time_bound := v_terms.time_bound;
            v_row.row_cap := v_terms.row_cap;
            v_row.on_outage := v_terms.on_outage;
            v_row.limit_version := v_terms.limit_version;
            for k in 1..3 loop
                continue when v_terms.caps[k] is null;
                v_name := case k
                    when 3 then e'\x1f\x1f'
                    else concat(
                        v_tenant, e'\x1f', v_want.endpoint, e'\x1f',
                        case when k = 1 then v_want.holder end)
                end;
                v_at := coalesce(array_position(v_pools, v_name), cardinality(v_pools) + 1);
                v_pools[v_at] := v_name;
                v_kinds[v_at] := k;
                -- of two caps of one pool the lower one holds
                v_pool_caps[v_at] := least(v_pool_caps[v_at], v_terms.caps[k]);
                v_shadow[v_at] := 0;
                v_firm[v_at] := coalesce(v_firm[v_at], 0)
                    + case when v_terms.mode = 'shadow' then 0 else v_want.weight end;
                v_pool_of[3 * v_count - 3 + k] := v_at;
            end loop;
        end if;
        v_rows[v_count] := v_row;
    end loop;

    -- a look at all of it; then, where nothing is refused, again with all of it locked
    for v_try in 1..2 loop
        exit when v_refused;
        if v_try = 1 and v_rates > 0 then
            select
                array_agg(c.tid order by k.place),
                array_agg(k.key) filter (
                    where (c.until > clock_timestamp() + interval '1 s') is not true)
            into v_seen, v_fresh
            from unnest(v_keys) with ordinality k (key, place)
            left join lateral (
                select n.ctid as tid, coalesce(n.reset_at, n.special_reset_at) as until
                from pglimit.counters n
                where n.key = k.key collate "C"
                order by n.turn desc
                limit 1
            ) c on true;
            v_durable := pg_sequence_last_value('pglimit.special_limits') is not null and exists (
                select
                from pglimit.limits l
                where l.tenant in (v_tenant, '') and l.limit_name = any (v_limits) and l.durable);
            if v_durable then
                -- that a key has a counter does not say that it has a logged one
                v_fresh := v_keys;
            end if;
        elsif v_rates > 0 then
            if v_claims <> '{}' then
                -- before the counters: a block at every limit has this table while it waits for
                -- them, and pools may need a lock in it
                lock table pglimit.creation_locks in row share mode;
            end if;
            v_tids := pglimit._lock_counts(v_keys, v_fresh, v_durable);
        end if;

        -- pools: v_firm is what must fit, v_shadow what mode shadow grants elsewhere if it does not
        if v_try = 1 then
            for v_at in 1..cardinality(v_pools) loop
                v_found := pglimit._find_lanes(
                    v_pools[v_at], v_pool_caps[v_at], greatest(v_firm[v_at], 1));
                v_in_use[v_at] := v_found.in_use;
                v_free_at[v_at] := v_found.free_at;
                v_full[v_at] := v_in_use[v_at] + v_firm[v_at] > v_pool_caps[v_at];
            end loop;
        else
            for v_at in
                select u.place
                from unnest(v_pools, v_kinds) with ordinality u (pool, kind, place)
                order by u.kind, hashtextextended(u.pool, 0) & 16383, u.pool collate "C"
            loop
                v_taken := null;
                for v_weight in
                    select distinct w.weight
                    from unnest(array[v_firm[v_at] + v_shadow[v_at], v_firm[v_at]]) w (weight)
                    where w.weight > 0
                    order by w.weight desc
                loop
                    v_found := pglimit._take_lanes(
                        v_kinds[v_at], v_pools[v_at], v_pool_caps[v_at], v_weight);
                    v_taken := v_found.taken;
                    v_in_use[v_at] := v_found.in_use;
                    v_free_at[v_at] := v_found.free_at;
                    exit when v_taken is not null;
                end loop;
                v_full[v_at] := v_taken is null and v_firm[v_at] > 0;
                v_room[v_at] := coalesce(cardinality(v_taken), 0) - v_firm[v_at];
                v_next[v_at] := cardinality(v_lanes) + 1;
                v_lanes := v_lanes || coalesce(v_taken, array[]::tid[]);
            end loop;
        end if;

        foreach v_at in array v_claims loop
            continue when v_modes[v_at] = 'off';
            v_row := v_rows[v_at];
            v_row.reason := null;
            v_caps := array[null, null, null]::bigint[];
            v_weight := v_weights[v_at];
            for k in reverse 3..1 loop
                v_pool := v_pool_of[3 * v_at - 3 + k];
                continue when v_pool is null;
                v_caps[k] := v_pool_caps[v_pool];
                if k < 3 then
                    -- of a fair endpoint whatever is wanted there at once
                    v_weight := greatest(v_weight, least(v_firm[v_pool], 1000));
                end if;
                v_is_full := case
                    when v_modes[v_at] <> 'shadow' then v_full[v_pool]
                    when v_try = 1 then v_in_use[v_pool] + v_firm[v_pool] + v_shadow[v_pool]
                        + v_weights[v_at] > v_pool_caps[v_pool]
                    else v_weights[v_at] > v_room[v_pool]
                end;
                if v_is_full then
                    v_row.reason := case
                        when greatest(v_weights[v_at], v_firm[v_pool]) > v_pool_caps[v_pool]
                        then 'never'
                        else (array['holder', 'endpoint', 'installation'])[k]
                    end;
                    v_row.cap := v_pool_caps[v_pool];
                    v_row.in_use := v_in_use[v_pool];
                    v_row.retry_after := case when v_row.reason <> 'never' then greatest(
                        v_free_at[v_pool] - clock_timestamp(), interval '1 microsecond')
                    end;
                end if;
            end loop;
            if v_fair[v_at] and v_row.reason is null then
                select w.reason, w.cap, w.in_use, w.retry_after
                into v_row.reason, v_row.cap, v_row.in_use, v_row.retry_after
                from pglimit._refuse_turn(
                    v_tenant, v_row.endpoint, v_row.holder, null, v_weight, v_caps,
                    least(
                        v_caps[2] - v_in_use[v_pool_of[3 * v_at - 1]],
                        v_caps[3] - v_in_use[v_pool_of[3 * v_at]]),
                    v_caps[1] - v_in_use[v_pool_of[3 * v_at - 2]]) w;
            end if;
            if v_modes[v_at] = 'shadow' then
                v_beyond[v_at] := v_beyond[v_at] or v_row.reason is not null;
                if not v_beyond[v_at] then
                    for k in 1..3 loop
                        v_pool := v_pool_of[3 * v_at - 3 + k];
                        continue when v_pool is null;
                        if v_try = 1 then
                            v_shadow[v_pool] := v_shadow[v_pool] + v_weights[v_at];
                        else
                            v_room[v_pool] := v_room[v_pool] - v_weights[v_at];
                        end if;
                    end loop;
                end if;
            else
                v_refused := v_refused or v_row.reason is not null;
            end if;
            v_rows[v_at] := v_row;
        end loop;

        -- a row that is the one seen says what it said then: time only gives back. Where there was
        -- none, nothing says whether its subject was blocked meanwhile, or has an override
        for v_at in 1..v_rates loop
            if v_try = 1
                or v_durable
                or v_seen[v_at] is null
                or v_tids[v_at] is distinct from v_seen[v_at]
            then
                v_hit := pglimit._hit_special(
                    v_limits[v_at], v_subjects[v_at], v_maxima[v_at], v_pers[v_at],
                    v_costs[v_at]::bigint, v_algorithms[v_at], v_bursts[v_at], v_tenant,
                    look_only => true);
                v_hits[v_at] := v_hit;
                v_refused := v_refused or not v_hit.allowed;
            end if;
        end loop;
    end loop;

    if not v_refused then
        for v_at in 1..v_rates loop
            v_hit := v_hits[v_at];
            v_hits[v_at] := pglimit._hit_special(
                v_limits[v_at], v_subjects[v_at], v_maxima[v_at], v_pers[v_at],
                v_costs[v_at]::bigint, v_algorithms[v_at], v_bursts[v_at], v_tenant,
                forced => v_hit.reason = 'allowed');
        end loop;
        -- those that take no place last: their locks are
        for v_last in 0..1 loop
            foreach v_at in array v_claims loop
                continue when v_beyond[v_at] <> (v_last = 1);
                v_row := v_rows[v_at];
                if v_beyond[v_at] then
                    select b.permit_id, b.expires_at
                    into v_row.permit_id, v_row.expires_at
                    from pglimit._grant_beyond(
                        v_tenant, v_row.endpoint, v_row.holder, v_lengths[v_at],
                        v_row.time_bound, v_longest[v_at], v_weights[v_at], null, null,
                        v_notes[v_at], v_modes[v_at] = 'shadow') b;
                    v_row.reason := v_modes[v_at];
                else
                    v_taken := array[]::tid[];
                    for k in 1..3 loop
                        v_pool := v_pool_of[3 * v_at - 3 + k];
                        continue when v_pool is null;
                        v_taken := v_taken || v_lanes[
                            v_next[v_pool]:v_next[v_pool] + v_weights[v_at]::integer - 1];
                        v_next[v_pool] := v_next[v_pool] + v_weights[v_at]::integer;
                    end loop;
                    v_now := clock_timestamp();
                    v_row.expires_at := v_now + least(v_lengths[v_at], v_longest[v_at]);
                    v_for := concat(
                        v_tenant, e'\x1f', v_row.endpoint, e'\x1f', v_row.holder);
                    with taken as (
                        update pglimit.permits p
                        set turn = greatest(
                                p.turn + 1, (date_part('epoch', v_now) * 1000000)::bigint),
                            permit_id = (
                                select nextval('pglimit.permit_number') + 549755813888 * coalesce(
                                    (select s.epoch from pglimit.sentinel s where s.singleton),
                                    pglimit._begin_epoch(null))),
                            expires_at = v_row.expires_at,
                            row_count = cardinality(v_taken),
                            changes = case when p.changes < 8 then p.changes + 1 else 0 end,
                            swept_turn = case
                                when p.changes < 8 then p.swept_turn
                                else p.turn
                            end,
                            claimed_at = case when p.ctid = v_taken[1] then v_now end,
                            lease = case when p.ctid = v_taken[1] then v_lengths[v_at] end,
                            ends_at = v_now + v_longest[v_at],
                            weight = case when p.ctid = v_taken[1] then v_weights[v_at] end,
                            for_pool = case
                                when p.ctid = v_taken[1] and p.pool <> v_for then v_for
                            end,
                            request = null,
                            note = case when p.ctid = v_taken[1] then v_notes[v_at] end
                        where p.ctid = any (v_taken)
                        returning p.permit_id
                    )
                    select t.permit_id into v_row.permit_id from taken t limit 1;
                    v_row.reason := 'granted';
                end if;
                v_rows[v_at] := v_row;
            end loop;
        end loop;
    end if;

    for v_at in 1..v_count loop
        v_row := v_rows[v_at];
        v_row.admitted := not v_refused;
        if v_rate_of[v_at] is not null then
            v_hit := v_hits[v_rate_of[v_at]];
            v_row.quota := v_hit.quota;
            v_row.remaining := greatest(v_hit.remaining, 0);
            v_row.reset_at := v_hit.reset_at;
            v_row.on_outage := v_hit.on_outage;
            v_row.limit_version := v_hit.limit_version;
            v_row.retry_after := v_hit.retry_after;
            v_row.charged := case
                when v_refused or v_hit.charged = 0 then 0
                else v_weights[v_at]
            end;
            v_row.reason := case
                when not v_refused or not v_hit.allowed then v_hit.reason
                else 'others'
            end;
        elsif v_refused and (v_row.reason is null or v_modes[v_at] <> 'enforce') then
            v_row.reason := 'others';
        end if;
        if v_row.reason = 'others' then
            v_row.cap := null;
            v_row.in_use := null;
            v_row.retry_after := null;
        end if;
        v_rows[v_at] := v_row;
    end loop;
    return query select r.* from unnest(v_rows) r order by r.ordinal;
end
$$;

comment on function pglimit.admit(jsonb, text) is
    'Records hits and claims permits, all of them or none. One row for each want, in order; where '
    'one is refused none is admitted, and each that is refused says why and for how long. '
    'PGL01 invalid argument, PGL02 unknown limit or endpoint, PGL03 wrong transaction, '
    '55P03 after 1 s of waiting.';

revoke all on function pglimit.admit(jsonb, text) from public;
