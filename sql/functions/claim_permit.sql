-- Claims `weight` slots in each pool asked for, all or nothing. Writes: permits (the lanes taken);
-- in a new epoch also installation and sentinel. Locks, in order: lanes of the holder's, the
-- endpoint's, the installation's pool, none of which it waits for; before them the creation lock
-- of a pool whose lanes are made or of which it takes several. Every pool is looked at before the
-- first lane is locked, so that a refusal writes nothing unless it lost a race. The number is drawn
-- after every lane is locked, so it grows with each hand-over of a lane; the update that draws it
-- gives all lanes their new turn, which sorts after every dead one. Correct without purge: a lane
-- is free as soon as its lease has ended. With a request_id a live permit of the same request is
-- the answer, whatever else the call asks for; the creation lock of the request is the first lock.
-- The claim of a ticket, for poll_ticket, is a request too: it locks that, the queue and the
-- ticket's row before any lane, and gives the ticket up with the grant. What modes shadow and off
-- grant beyond the caps takes its lane last, see _grant_beyond.
create or replace function pglimit.claim_permit(
    endpoint text,
    holder text,
    holder_cap bigint default null,
    endpoint_cap bigint default null,
    installation_cap bigint default null,
    lease interval default null,
    weight bigint default 1,
    request_id text default null,
    note jsonb default null,
    tenant text default null,
    ticket bigint default null
)
returns pglimit.claim_row
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
    v_tenant text := coalesce(claim_permit.tenant, current_setting('pglimit.tenant', true), '');
    v_shared text := concat(v_tenant, e'\x1f', claim_permit.endpoint, e'\x1f');
    v_for text := v_shared || claim_permit.holder;
    v_pools text[] := array[v_for, v_shared, e'\x1f\x1f'];
    v_caps bigint[];
    v_pool_count integer;
    v_holder_cap bigint;
    v_endpoint_cap bigint;
    v_installation_cap bigint;
    v_in_installation boolean;
    v_time_bound interval;
    v_longest interval;
    v_row_cap bigint;
    v_on_outage text;
    v_version bigint;
    v_special boolean;
    v_mode text;
    v_queued boolean;
    v_waits boolean;
    v_room bigint;
    v_holder_room bigint;
    v_cap bigint;
    v_lease interval;
    v_request text;
    v_luck integer := random() * 1000000000;
    v_lane integer;
    v_tid tid;
    v_turn bigint;
    v_expires timestamptz;
    v_found tid[] := array[null, null, null]::tid[];
    v_turns bigint[] := array[null, null, null]::bigint[];
    v_last integer;
    v_changes integer;
    v_swept bigint;
    v_above boolean;
    v_reason text;
    v_retry interval;
    v_in_use bigint;
    v_free_at timestamptz;
    v_taken tid[] := array[]::tid[];
    v_id bigint;
    v_now timestamptz;
begin
    -- one expression for the usual case, for each costs in each transaction; stricter than the
    -- rules, which _check_claim knows. Exactly two separators, or names would meet in one pool.
    if (
        current_setting('transaction_isolation') = 'read committed'
        and current_setting('transaction_read_only') = 'off'
        and pg_current_xact_id_if_assigned() is null
        and v_for collate "C"
            ~ e'^[^[:cntrl:]]*\x1f[!-~][ -~]*\x1f[^[:space:][:cntrl:]][^\x1f]*$'
        and octet_length(v_for) <= 1026
        and claim_permit.weight = 1
        and claim_permit.note is null
        and claim_permit.ticket is null
        and (claim_permit.lease <= '0 s') is not true
        and (claim_permit.holder_cap < 0) is not true
        and (claim_permit.endpoint_cap < 0) is not true
        and (claim_permit.installation_cap < 0) is not true
    ) is not true then
        perform pglimit._check_transaction('claim_permit');
        perform pglimit._check_claim(
            claim_permit.endpoint, claim_permit.holder, claim_permit.holder_cap,
            claim_permit.endpoint_cap, claim_permit.installation_cap, claim_permit.lease,
            claim_permit.weight, claim_permit.note, v_tenant);
        v_queued := claim_permit.ticket is not null;
        v_waits := v_queued;
    end if;

    select
        e.holder_cap, e.endpoint_cap, e.in_installation, e.time_bound, e.longest, e.row_cap,
        e.on_outage, e.limit_version, e.special
    into
        v_holder_cap, v_endpoint_cap, v_in_installation, v_time_bound, v_longest, v_row_cap,
        v_on_outage, v_version, v_special
    from pglimit.endpoints e
    where e.tenant = v_tenant and e.endpoint = claim_permit.endpoint;
    if not found and v_tenant <> '' then
        select
            e.holder_cap, e.endpoint_cap, e.in_installation, e.time_bound, e.longest, e.row_cap,
            e.on_outage, e.limit_version, e.special
        into
            v_holder_cap, v_endpoint_cap, v_in_installation, v_time_bound, v_longest, v_row_cap,
            v_on_outage, v_version, v_special
        from pglimit.endpoints e
        where e.tenant = '' and e.endpoint = claim_permit.endpoint;
    end if;
    if v_in_installation and claim_permit.installation_cap is null then
        select i.installation_cap into v_installation_cap
        from pglimit.installation i
        where i.singleton;
    end if;
    if v_special or v_queued then
        if v_queued then
            -- those wait for each other who wait in one queue; poll_ticket has seen that there is
            -- room
            v_request := pglimit._check_ticket(claim_permit.ticket, claim_permit.request_id);
            perform pglimit._lock_creation(4, v_request);
            perform pglimit._lock_creation(6, v_shared);
            perform
            from pglimit.permits p
            where p.request = v_request
                and coalesce(p.for_pool, p.pool) <> v_for
                and p.expires_at > clock_timestamp();
            if found then
                -- granted already, but to another holder or at another endpoint
                return row(
                    false, 'no ticket', null, null, null, null, null,
                    v_time_bound, v_row_cap, v_on_outage, v_version, null)::pglimit.claim_row;
            end if;
        end if;
        if v_special then
            select
                r.mode,
                r.fair or claim_permit.ticket is not null,
                r.somebody_waits or claim_permit.ticket is not null,
                coalesce(r.holder_cap, claim_permit.holder_cap),
                coalesce(r.limit_version, v_version)
            into v_mode, v_queued, v_waits, claim_permit.holder_cap, v_version
            from pglimit._claim_rule(v_tenant, claim_permit.endpoint, claim_permit.holder) r;
            if v_mode = 'off' then
                select b.permit_id, b.expires_at
                into v_id, v_expires
                from pglimit._grant_beyond(
                    v_tenant, claim_permit.endpoint, claim_permit.holder, claim_permit.lease,
                    v_time_bound, v_longest, claim_permit.weight, claim_permit.request_id,
                    v_request, claim_permit.note, false, null, claim_permit.ticket) b;
                if v_id is null then
                    return row(
                        false, 'no ticket', null, null, null, null, null,
                        v_time_bound, v_row_cap, v_on_outage, v_version,
                        null)::pglimit.claim_row;
                end if;
                perform pglimit._leave_queue(
                    v_tenant, claim_permit.endpoint, claim_permit.ticket);
                return row(
                    true, 'off', v_id, v_expires, null, null, null,
                    v_time_bound, v_row_cap, v_on_outage, v_version, null)::pglimit.claim_row;
            end if;
        end if;
    end if;
    v_caps := array[
        coalesce(claim_permit.holder_cap, v_holder_cap),
        coalesce(claim_permit.endpoint_cap, v_endpoint_cap),
        coalesce(claim_permit.installation_cap, v_installation_cap)];
    v_pool_count := num_nonnulls(variadic v_caps);
    if v_pool_count = 0 then
        perform pglimit._unknown_endpoint(claim_permit.endpoint);
    end if;
    v_lease := coalesce(claim_permit.lease, v_time_bound + interval '30 s');
    -- days would follow the time zone of the session: the last 8 bytes of the binary form are days
    -- and months
    if (
        v_lease < '1 day' and substr(interval_send(v_lease), 9) = e'\\x0000000000000000'
    ) is not true then
        if v_lease is null then
            perform pglimit._no_lease(claim_permit.endpoint);
        end if;
        v_lease := pglimit._fixed_interval('lease', v_lease);
    end if;

    if claim_permit.request_id is not null then
        v_request := v_for || e'\x1f' || pglimit._check_request_id(claim_permit.request_id);
    end if;

    -- look at every pool before anything is locked. For one slot, a free lane met at random among
    -- the first 256 will do, where no lane lies above the cap; else the whole pool is read. A pool
    -- asked for alone is read when its lane is taken, unless the lock of a request comes before.
    for k in 1..3 loop
        continue when v_caps[k] is null;
        v_last := k;
        if claim_permit.weight > v_caps[k] then
            select f.in_use into v_in_use from pglimit._find_lanes(v_pools[k], v_caps[k], 1) f;
            v_reason := 'never';
            exit;
        end if;
        if claim_permit.weight = 1 and claim_permit.ticket is null then
            for v_probe in 1..2 loop
                v_lane := 1 + (v_luck + v_probe) % least(v_caps[k], 256);
                select
                    p.ctid, p.turn, p.expires_at, p.changes, p.swept_turn,
                    (
                        select true
                        from pglimit.permits a
                        where a.pool = v_pools[k] and a.lane > v_caps[k]
                        order by a.lane desc, a.turn desc
                        limit 1
                    )
                into v_tid, v_turn, v_expires, v_changes, v_swept, v_above
                from pglimit.permits p
                where p.pool = v_pools[k] and p.lane = v_lane
                order by p.turn desc
                limit 1;
                exit when v_above;
                if v_expires <= clock_timestamp() then
                    v_found[k] := v_tid;
                    v_turns[k] := v_turn;
                    if v_changes >= 8 then
                        perform pglimit._sweep_lane(v_pools[k], v_lane, v_swept, v_turn);
                    end if;
                    exit;
                end if;
            end loop;
        end if;
        if v_found[k] is null then
            continue when v_pool_count = 1 and v_request is null;
            select f.in_use, f.free_at
            into v_in_use, v_free_at
            from pglimit._find_lanes(v_pools[k], v_caps[k], claim_permit.weight) f;
            if v_in_use + claim_permit.weight > v_caps[k] then
                v_reason := (array['holder', 'endpoint', 'installation'])[k];
                v_retry := greatest(v_free_at - clock_timestamp(), interval '1 microsecond');
                exit;
            end if;
            if k = 1 then
                v_holder_room := v_caps[k] - v_in_use;
            else
                v_room := least(v_room, v_caps[k] - v_in_use);
            end if;
        end if;
    end loop;

    -- a request whose permit is live has that one. Who may be granted a permit waits for another
    -- attempt of the same request; who is refused need not, for what it saw is committed.
    if v_request is not null then
        if v_reason is null then
            perform pglimit._lock_creation(4, v_request);
        end if;
        select p.permit_id, p.expires_at
        into v_id, v_expires
        from pglimit.permits p
        where p.request = v_request
        order by p.permit_id desc
        limit 1;
        if v_expires > clock_timestamp() then
            return row(
                true, 'granted', v_id, v_expires, null, null, null,
                v_time_bound, v_row_cap, v_on_outage, v_version, null)::pglimit.claim_row;
        end if;
    end if;
    if v_waits and v_reason is null then
        select w.reason, w.cap, w.in_use, w.retry_after
        into v_reason, v_cap, v_in_use, v_retry
        from pglimit._refuse_turn(
            v_tenant, claim_permit.endpoint, claim_permit.holder, claim_permit.ticket,
            claim_permit.weight, v_caps, v_room, v_holder_room) w;
    end if;

    -- one slot of one pool, the commonest case: locked and taken in one statement
    if v_reason is not null then
        v_cap := coalesce(v_cap, v_caps[v_last]);
        v_caps := array[null, null, null]::bigint[];
    elsif v_found[v_last] is not null and v_pool_count = 1 and v_queued is not true then
        v_now := clock_timestamp();
        v_expires := v_now + least(v_lease, v_longest);
        update pglimit.permits p
        set turn = greatest(p.turn + 1, (date_part('epoch', v_now) * 1000000)::bigint),
            permit_id = (
                select nextval('pglimit.permit_number') + 549755813888 * coalesce(
                    (select s.epoch from pglimit.sentinel s where s.singleton),
                    pglimit._begin_epoch(null))),
            expires_at = v_expires,
            row_count = 1,
            changes = case when p.changes < 8 then p.changes + 1 else 0 end,
            swept_turn = case when p.changes < 8 then p.swept_turn else p.turn end,
            claimed_at = v_now,
            lease = v_lease,
            ends_at = v_now + v_longest,
            weight = 1,
            for_pool = nullif(v_for, p.pool),
            request = v_request,
            note = claim_permit.note
        where p.ctid = (
            select l.ctid
            from pglimit.permits l
            where l.ctid = v_found[v_last]
                and l.pool || '' = v_pools[v_last]
                and l.turn + 0 = v_turns[v_last]
                and l.expires_at <= clock_timestamp()
            for update skip locked)
        returning p.permit_id into v_id;
        if found then
            return row(
                true, 'granted', v_id, v_expires, null, null, null,
                v_time_bound, v_row_cap, v_on_outage, v_version, null)::pglimit.claim_row;
        end if;
        v_found[v_last] := null;
    end if;

    for k in 1..3 loop
        continue when v_caps[k] is null;
        v_tid := null;
        if v_found[k] is not null then
            -- by ctid alone: through the index it would read the lane's dead turns
            select p.ctid
            into v_tid
            from pglimit.permits p
            where p.ctid = v_found[k]
                and p.pool || '' = v_pools[k]
                and p.turn + 0 = v_turns[k]
                and p.expires_at <= clock_timestamp()
            for update skip locked;
        end if;
        if v_tid is not null then
            v_taken := v_taken || v_tid;
        else
            select f.in_use, f.free_at, v_taken || f.taken
            into v_in_use, v_free_at, v_taken
            from pglimit._take_lanes(k, v_pools[k], v_caps[k], claim_permit.weight) f;
            if v_in_use + claim_permit.weight > v_caps[k] then
                v_reason := (array['holder', 'endpoint', 'installation'])[k];
                v_cap := v_caps[k];
                v_retry := greatest(v_free_at - clock_timestamp(), interval '1 microsecond');
                exit;
            end if;
        end if;
    end loop;

    if v_queued and v_reason is null and claim_permit.ticket is null then
        -- who came to wait while the slots were locked was first: what they wait for is these
        select p.ends_at > clock_timestamp() into v_waits
        from pglimit.permits p
        where p.pool = v_tenant || e'\x1f\x1fq' || claim_permit.endpoint and p.lane = 0
        order by p.turn desc
        limit 1;
        if v_waits then
            select w.reason, w.cap, w.in_use, w.retry_after
            into v_reason, v_cap, v_in_use, v_retry
            from pglimit._refuse_turn(
                v_tenant, claim_permit.endpoint, claim_permit.holder, null, claim_permit.weight,
                v_caps, v_room, v_holder_room) w;
        end if;
    end if;
    if v_reason is not null then
        if v_mode = 'shadow' then
            select b.permit_id, b.expires_at
            into v_id, v_expires
            from pglimit._grant_beyond(
                v_tenant, claim_permit.endpoint, claim_permit.holder, v_lease, null, v_longest,
                claim_permit.weight, null, v_request, claim_permit.note, true, null,
                claim_permit.ticket) b;
            if claim_permit.ticket is not null and v_id is not null then
                perform pglimit._leave_queue(
                    v_tenant, claim_permit.endpoint, claim_permit.ticket);
            end if;
            if v_id is not null then
                return row(
                    true, 'shadow', v_id, v_expires, v_cap, v_in_use, v_retry,
                    v_time_bound, v_row_cap, v_on_outage, v_version,
                    v_reason)::pglimit.claim_row;
            end if;
            v_reason := 'no ticket';
        end if;
        return row(
            false, v_reason, null, null, v_cap, v_in_use, v_retry,
            v_time_bound, v_row_cap, v_on_outage, v_version, null)::pglimit.claim_row;
    end if;

    v_tid := v_taken[1];
    v_now := clock_timestamp();
    v_expires := v_now + least(v_lease, v_longest);
    with taken as (
        update pglimit.permits p
        set turn = greatest(p.turn + 1, (date_part('epoch', v_now) * 1000000)::bigint),
            permit_id = (
                select nextval('pglimit.permit_number') + 549755813888 * coalesce(
                    (select s.epoch from pglimit.sentinel s where s.singleton),
                    pglimit._begin_epoch(null))),
            expires_at = v_expires,
            row_count = cardinality(v_taken),
            changes = case when p.changes < 8 then p.changes + 1 else 0 end,
            swept_turn = case when p.changes < 8 then p.swept_turn else p.turn end,
            claimed_at = case when p.ctid = v_tid then v_now end,
            lease = case when p.ctid = v_tid then v_lease end,
            ends_at = v_now + v_longest,
            weight = case when p.ctid = v_tid then claim_permit.weight end,
            for_pool = case when p.ctid = v_tid and p.pool <> v_for then v_for end,
            request = case when p.ctid = v_tid then v_request end,
            note = case when p.ctid = v_tid then claim_permit.note end
        where p.ctid = any (v_taken)
        returning p.permit_id
    )
    select t.permit_id into v_id from taken t limit 1;
    if v_queued then
        perform pglimit._leave_queue(v_tenant, claim_permit.endpoint, claim_permit.ticket);
    end if;
    return row(
        true, 'granted', v_id, v_expires, null, null, null,
        v_time_bound, v_row_cap, v_on_outage, v_version, null)::pglimit.claim_row;
end
$$;

comment on function pglimit.claim_permit(
    text, text, bigint, bigint, bigint, interval, bigint, text, jsonb, text, bigint) is
    'Claims a permit of a heavy endpoint for a holder, within the caps of holder, endpoint and '
    'installation, all or nothing. One row; a refusal is a row with granted = false that names '
    'the pool. PGL01 invalid argument, PGL02 unknown endpoint, PGL03 wrong transaction, '
    '55P03 after 1 s of waiting.';

revoke all on function pglimit.claim_permit(
    text, text, bigint, bigint, bigint, interval, bigint, text, jsonb, text, bigint) from public;
