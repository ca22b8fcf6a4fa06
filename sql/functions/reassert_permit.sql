-- Takes a permit again that a crash or a promotion lost, under its own permit_id and within the
-- caps, as long as the grace time after the loss has not passed; all of its lanes or none. In the
-- installation's pool the room that _begin_epoch keeps comes first. A permit that is live is
-- renewed, and what lapsed or was released since the loss stays so while its rows tell. Whoever
-- claimed meanwhile has a greater permit_id. An endpoint in mode shadow or off refuses nobody for
-- want of room: there the permit is taken again beyond the caps, as a claim is granted.
-- Writes: permits (the lanes taken); where it is the first to find the loss also installation and
-- sentinel. Locks, in the order of a claim: the creation lock of this permit_id (of two calls the
-- second finds the permit live), lanes of the holder's and the endpoint's pool, the creation lock
-- of the installation's pool, which keeps others from the same reserve, its lanes, the
-- installation's row; beyond the caps, last, what _grant_beyond locks. It waits for creation locks
-- and that row only, and for the head row of a permit that is live. Every pool is looked at before
-- anything is locked, so a refusal writes nothing unless it lost a race or was the first to find
-- the loss. A lane of the reserve counts as in use for everybody, so that taking it over makes no
-- pool fuller; the lanes are read before the reserve is, so that room that lapses in between
-- refuses and does not count twice. The clock is read again under the locks.
create or replace function pglimit.reassert_permit(
    permit_id bigint,
    endpoint text,
    holder text,
    holder_cap bigint default null,
    endpoint_cap bigint default null,
    installation_cap bigint default null,
    lease interval default null,
    weight bigint default 1,
    note jsonb default null,
    tenant text default null
)
returns pglimit.renew_row
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
set jit = off
as $$
#variable_conflict use_column
declare
    v_tenant text := coalesce(reassert_permit.tenant, current_setting('pglimit.tenant', true), '');
    v_shared text := concat(v_tenant, e'\x1f', reassert_permit.endpoint, e'\x1f');
    v_for text := v_shared || reassert_permit.holder;
    v_pools text[] := array[v_for, v_shared, e'\x1f\x1f'];
    v_kinds text[] := array['holder', 'endpoint', 'installation'];
    v_caps bigint[];
    v_holder_cap bigint;
    v_endpoint_cap bigint;
    v_installation_cap bigint;
    v_in_installation boolean;
    v_special boolean;
    v_mode text;
    v_reason text;
    v_time_bound interval;
    v_longest interval;
    v_asked interval := reassert_permit.lease;
    v_lease interval;
    v_state text;
    v_claimed_lease interval;
    v_ends_at timestamptz;
    v_expires timestamptz;
    v_epoch bigint;
    v_until timestamptz;
    v_in_use bigint;
    v_kept tid[];
    v_turns bigint[];
    v_held tid[];
    v_part tid[];
    v_taken tid[] := array[]::tid[];
    v_count integer;
    v_now timestamptz;
begin
    if (
        current_setting('transaction_isolation') = 'read committed'
        and current_setting('transaction_read_only') = 'off'
        and pg_current_xact_id_if_assigned() is null
    ) is not true then
        perform pglimit._check_transaction('reassert_permit');
    end if;
    if reassert_permit.permit_id is null then
        raise exception using
            errcode = 'PGL01',
            message = 'permit_id is null',
            detail = 'A permit is reasserted by the permit_id that claim_permit returned.',
            hint = 'Who has no permit_id claims a new permit: pglimit.claim_permit(...).';
    end if;
    perform pglimit._check_claim(
        reassert_permit.endpoint, reassert_permit.holder, reassert_permit.holder_cap,
        reassert_permit.endpoint_cap, reassert_permit.installation_cap, reassert_permit.lease,
        reassert_permit.weight, reassert_permit.note, v_tenant);

    -- what the call leaves out, the mode, and the holder's override, as in claim_permit. Who waits
    -- in a queue counts for nothing: the permit was granted before.
    select
        e.holder_cap, e.endpoint_cap, e.in_installation, e.time_bound, e.longest, e.special
    into
        v_holder_cap, v_endpoint_cap, v_in_installation, v_time_bound, v_longest, v_special
    from pglimit.endpoints e
    where e.endpoint = reassert_permit.endpoint and e.tenant in (v_tenant, '')
    order by e.tenant desc
    limit 1;
    if v_in_installation and reassert_permit.installation_cap is null then
        select i.installation_cap into v_installation_cap
        from pglimit.installation i
        where i.singleton;
    end if;
    if v_special then
        select r.mode, coalesce(r.holder_cap, reassert_permit.holder_cap)
        into v_mode, reassert_permit.holder_cap
        from pglimit._claim_rule(
            v_tenant, reassert_permit.endpoint, reassert_permit.holder) r;
    end if;
    v_caps := array[
        coalesce(reassert_permit.holder_cap, v_holder_cap),
        coalesce(reassert_permit.endpoint_cap, v_endpoint_cap),
        coalesce(reassert_permit.installation_cap, v_installation_cap)];
    if num_nonnulls(variadic v_caps) = 0 then
        perform pglimit._unknown_endpoint(reassert_permit.endpoint);
    end if;
    if v_mode = 'off' then
        v_caps := array[null, null, null]::bigint[];
    end if;
    if v_asked is not null then
        v_asked := pglimit._fixed_interval('lease', v_asked);
    end if;
    v_lease := coalesce(v_asked, v_time_bound + interval '30 s');
    if v_lease is null then
        perform pglimit._no_lease(reassert_permit.endpoint);
    end if;
    v_lease := pglimit._fixed_interval('lease', v_lease);
    if reassert_permit.permit_id <= 0 then
        return row(false, 'unknown', null)::pglimit.renew_row;
    end if;

    -- what the permit is: without a lock first, and again when nobody else can reassert it
    for v_look in 1..2 loop
        select l.state, l.expires_at, l.lease, l.ends_at
        into v_state, v_expires, v_claimed_lease, v_ends_at
        from pglimit._lock_permit(reassert_permit.permit_id, reassert_permit.holder) l;
        if v_state = 'live' then
            v_expires := least(clock_timestamp() + coalesce(v_asked, v_claimed_lease), v_ends_at);
            update pglimit.permits p
            set expires_at = v_expires
            where p.permit_id = reassert_permit.permit_id;
            return row(true, 'renewed', v_expires)::pglimit.renew_row;
        end if;
        if v_state <> 'unknown' then
            return row(
                false, v_state, case when v_state = 'lapsed' then v_expires end)::pglimit.renew_row;
        end if;

        -- without a sentinel this call is the first to find the loss, and the epoch to come is
        -- later than the one that is stored
        select
            coalesce(s.epoch, i.epoch + 1),
            case
                when s.epoch is not null then i.lost_at + i.grace
                when i.epoch > 0 then clock_timestamp() + i.grace
            end
        into v_epoch, v_until
        from pglimit.installation i
        left join pglimit.sentinel s on s.singleton
        where i.singleton;
        if reassert_permit.permit_id / 549755813888 >= v_epoch then
            return row(false, 'unknown', null)::pglimit.renew_row;
        end if;
        if (clock_timestamp() < v_until) is not true then
            return row(false, 'late', null)::pglimit.renew_row;
        end if;
        -- reasserted already, and released
        if exists (
            select from pglimit.permits p where p.permit_id = reassert_permit.permit_id)
        then
            return row(false, 'unknown', null)::pglimit.renew_row;
        end if;
        exit when v_look = 2;

        for k in 1..3 loop
            continue when v_caps[k] is null;
            if reassert_permit.weight > v_caps[k] then
                v_reason := 'never';
                exit;
            end if;
            select f.in_use
            into v_in_use
            from pglimit._find_lanes(v_pools[k], v_caps[k], reassert_permit.weight) f;
            if k = 3 then
                select f.tids into v_kept from pglimit._find_reserve() f;
                v_in_use := v_in_use - cardinality(v_kept);
            end if;
            if v_in_use + reassert_permit.weight > v_caps[k] then
                v_reason := v_kinds[k];
                exit;
            end if;
        end loop;
        if v_reason is not null and v_mode is distinct from 'shadow' then
            return row(false, v_reason, null)::pglimit.renew_row;
        end if;
        perform pglimit._lock_creation(4, reassert_permit.permit_id::text);
    end loop;

    for k in 1..3 loop
        exit when v_reason is not null;
        continue when v_caps[k] is null;
        v_held := array[]::tid[];
        if k = 3 then
            perform pglimit._lock_creation(3, v_pools[3]);
            if not exists (select from pglimit.sentinel s where s.singleton) then
                perform pglimit._begin_epoch(null);
            end if;
            select f.tids, f.turns into v_kept, v_turns from pglimit._find_reserve() f;
            select coalesce(array_agg(x.ctid), array[]::tid[])
            into v_held
            from (
                select p.ctid
                from unnest(v_kept, v_turns) c (ctid, turn)
                join pglimit.permits p
                    on p.ctid = c.ctid
                    -- by ctid alone: through the index it would read the dead turns of every lane
                    and p.pool || '' = v_pools[3]
                    and p.turn + 0 = c.turn
                    and p.expires_at > clock_timestamp()
                limit reassert_permit.weight
                for update of p skip locked
            ) x;
            -- others who are to come take over the rest of the reserve
            select f.in_use
            into v_in_use
            from pglimit._find_lanes(v_pools[3], v_caps[3], reassert_permit.weight) f;
            select f.tids into v_kept from pglimit._find_reserve() f;
            if v_in_use - cardinality(v_kept) + reassert_permit.weight > v_caps[3] then
                v_reason := v_kinds[3];
                exit;
            end if;
        end if;
        v_part := v_held;
        if cardinality(v_held) < reassert_permit.weight then
            select f.taken
            into v_part
            from pglimit._take_lanes(
                k, v_pools[k], v_caps[k], reassert_permit.weight, v_held) f;
            if v_part is null then
                v_reason := v_kinds[k];
                exit;
            end if;
        end if;
        v_taken := v_taken || v_part;
    end loop;
    if v_reason is not null and v_mode is distinct from 'shadow' then
        return row(false, v_reason, null)::pglimit.renew_row;
    end if;
    if not exists (select from pglimit.sentinel s where s.singleton) then
        perform pglimit._begin_epoch(null);
    end if;
    select i.lost_at + i.grace into v_until from pglimit.installation i where i.singleton;
    v_now := clock_timestamp();
    if (v_now < v_until) is not true then
        return row(false, 'late', null)::pglimit.renew_row;
    end if;

    if v_reason is not null or v_mode = 'off' then
        select b.expires_at
        into v_expires
        from pglimit._grant_beyond(
            v_tenant, reassert_permit.endpoint, reassert_permit.holder, v_lease, null, v_longest,
            reassert_permit.weight, null, null, reassert_permit.note, v_mode = 'shadow',
            reassert_permit.permit_id) b;
        return row(true, 'reasserted', v_expires)::pglimit.renew_row;
    end if;
    v_expires := v_now + least(v_lease, v_longest);
    update pglimit.permits p
    set turn = greatest(p.turn + 1, (date_part('epoch', v_now) * 1000000)::bigint),
        permit_id = reassert_permit.permit_id,
        expires_at = v_expires,
        row_count = cardinality(v_taken),
        changes = case when p.changes < 8 then p.changes + 1 else 0 end,
        swept_turn = case when p.changes < 8 then p.swept_turn else p.turn end,
        claimed_at = case when p.ctid = v_taken[1] then v_now end,
        lease = case when p.ctid = v_taken[1] then v_lease end,
        ends_at = v_now + v_longest,
        weight = case when p.ctid = v_taken[1] then reassert_permit.weight end,
        for_pool = case when p.ctid = v_taken[1] and p.pool <> v_for then v_for end,
        request = null,
        note = case when p.ctid = v_taken[1] then reassert_permit.note end,
        reasserted_at = case when p.ctid = v_taken[1] then v_now end
    where p.ctid = any (v_taken);
    get diagnostics v_count = row_count;
    if v_count <> cardinality(v_taken) then
        -- under a lowered cap, what lapsed while it was held was marked in a new version of its row
        raise exception using
            errcode = '55P03',
            message = format('the room kept for permit %s lapsed while it was taken over',
                reassert_permit.permit_id),
            detail = 'The grace time ended during the call. Nothing was changed.',
            hint = 'Try again; what is answered late is over: claim a new permit.';
    end if;
    return row(true, 'reasserted', v_expires)::pglimit.renew_row;
end
$$;

comment on function pglimit.reassert_permit(
    bigint, text, text, bigint, bigint, bigint, interval, bigint, jsonb, text) is
    'Takes a permit again that a crash lost, under its own permit_id and within its caps, as long '
    'as the grace time lasts; renews a live one. One row: reasserted, renewed, holder, endpoint, '
    'installation, never, late, lapsed, unknown or not holder. PGL01 invalid argument, PGL02 '
    'unknown endpoint, PGL03 wrong transaction, 55P03 after 1 s of waiting.';

revoke all on function pglimit.reassert_permit(
    bigint, text, text, bigint, bigint, bigint, interval, bigint, jsonb, text) from public;
