-- Draws a ticket: a place in the queue of an endpoint, for poll_ticket. Tickets are served by their
-- virtual finish (self-clocked fair queueing, S. J. Golestani, INFOCOM 1994): that of the last
-- ticket served or of the holder's ticket before this one, whichever is later, and the weight
-- divided by the holder's share. So a holder's tickets keep their order, and holders take turns.
-- A ticket is a permit of one place in the queue's own pool, with a short lease that each poll
-- extends, so one that is polled no more is passed over, and purge, crash and release treat it as
-- any permit. Writes: permits; in a new epoch installation and sentinel. Locks: the queue's
-- creation lock, after a look without it, so that a refusal locks nothing unless it lost a race;
-- where places are made the creation lock of their pool.
create or replace function pglimit.enqueue_permit(
    endpoint text,
    holder text,
    holder_cap bigint default null,
    endpoint_cap bigint default null,
    installation_cap bigint default null,
    lease interval default null,
    weight bigint default 1,
    deadline interval default '1 minute',
    note jsonb default null,
    tenant text default null
)
returns pglimit.ticket_row
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
    v_tenant text := coalesce(enqueue_permit.tenant, current_setting('pglimit.tenant', true), '');
    v_shared text := concat(v_tenant, e'\x1f', enqueue_permit.endpoint, e'\x1f');
    v_for text := v_shared || enqueue_permit.holder;
    v_queue text := v_tenant || e'\x1f\x1fq' || enqueue_permit.endpoint;
    v_row pglimit.endpoints;
    v_waiting bigint;
    v_of_holder bigint;
    v_last double precision;
    v_served double precision;
    v_until timestamptz;
    v_state tid;
    v_share bigint;
    v_holder_cap bigint;
    v_installation_cap bigint;
    v_cap bigint;
    v_top integer;
    v_lane integer;
    v_turn bigint;
    v_changes integer;
    v_swept bigint;
    v_taken tid;
    v_now timestamptz;
    v_ends timestamptz;
    v_poll_after interval;
    v_id bigint;
begin
    perform pglimit._check_transaction('enqueue_permit');
    perform pglimit._check_claim(
        enqueue_permit.endpoint, enqueue_permit.holder, enqueue_permit.holder_cap,
        enqueue_permit.endpoint_cap, enqueue_permit.installation_cap, enqueue_permit.lease,
        enqueue_permit.weight, enqueue_permit.note, v_tenant);
    select e.* into v_row
    from pglimit.endpoints e
    where e.tenant in (v_tenant, '') and e.endpoint = enqueue_permit.endpoint
    order by e.tenant desc
    limit 1;
    if v_row.endpoint is null
        and num_nonnulls(
            enqueue_permit.holder_cap, enqueue_permit.endpoint_cap,
            enqueue_permit.installation_cap) = 0
    then
        perform pglimit._unknown_endpoint(enqueue_permit.endpoint);
    end if;
    if enqueue_permit.lease is not null then
        enqueue_permit.lease := pglimit._fixed_interval('lease', enqueue_permit.lease);
    elsif v_row.time_bound is null then
        perform pglimit._no_lease(enqueue_permit.endpoint);
    end if;
    enqueue_permit.deadline := pglimit._fixed_interval('deadline', enqueue_permit.deadline);
    -- without a row the bounds that a row has by itself
    v_row.queue_cap := coalesce(v_row.queue_cap, 1000);
    v_row.holder_queue_cap := coalesce(v_row.holder_queue_cap, 100);
    if v_row.overridden then
        select o.share, o.holder_cap
        into v_share, v_holder_cap
        from pglimit.endpoint_overrides o
        where o.tenant = v_tenant
            and o.endpoint = enqueue_permit.endpoint
            and o.holder = enqueue_permit.holder
            and o.valid_from <= clock_timestamp()
            and o.valid_until > clock_timestamp();
    end if;
    if v_row.in_installation then
        select i.installation_cap into v_installation_cap
        from pglimit.installation i
        where i.singleton;
    end if;
    v_cap := least(
        coalesce(v_holder_cap, enqueue_permit.holder_cap, v_row.holder_cap),
        coalesce(enqueue_permit.endpoint_cap, v_row.endpoint_cap),
        coalesce(enqueue_permit.installation_cap, v_installation_cap));
    if enqueue_permit.weight > v_cap and (v_row.mode <> 'enforce') is not true then
        return row(
            false, 'never', null, null, null, null, v_cap, null)::pglimit.ticket_row;
    end if;

    for v_look in 1..2 loop
        select p.lane into v_top
        from pglimit.permits p
        where p.pool = v_queue
        order by p.lane desc, p.turn desc
        limit 1;
        -- as _current_rows, in half the time: others wait for the lock meanwhile
        select
            count(*) filter (where x.live),
            count(*) filter (where x.live and x.for_pool = v_for),
            max(x.queue_tag) filter (where x.live and x.for_pool = v_for),
            min(g.lane) filter (where not x.live)
        into v_waiting, v_of_holder, v_last, v_lane
        from generate_series(1, v_top) g (lane)
        cross join lateral (
            select p.for_pool, p.queue_tag, p.expires_at > clock_timestamp() as live
            from pglimit.permits p
            where p.pool = v_queue and p.lane = g.lane
            order by p.turn desc
            limit 1
        ) x;
        if v_of_holder >= v_row.holder_queue_cap or v_waiting >= v_row.queue_cap then
            return row(
                false, 'queue full', null, null, null, null,
                case when v_of_holder >= v_row.holder_queue_cap
                    then v_row.holder_queue_cap else v_row.queue_cap end,
                case when v_of_holder >= v_row.holder_queue_cap
                    then v_of_holder else v_waiting end)::pglimit.ticket_row;
        end if;
        exit when v_look = 2;
        perform pglimit._lock_creation(6, v_shared);
    end loop;

    -- first a place, then the state: purge removes a queue whole, and not while a place is locked
    if v_lane is not null then
        select p.ctid, p.turn, p.changes, p.swept_turn
        into v_taken, v_turn, v_changes, v_swept
        from pglimit.permits p
        where p.pool = v_queue and p.lane = v_lane
        order by p.turn desc
        limit 1;
        if v_changes >= 8 then
            perform pglimit._sweep_lane(v_queue, v_lane, v_swept, v_turn);
        end if;
        select p.ctid
        into v_taken
        from pglimit.permits p
        where p.ctid = v_taken
            and p.pool || '' = v_queue
            and p.turn + 0 = v_turn
            and p.expires_at <= clock_timestamp()
        for update skip locked;
    end if;
    if v_taken is null then
        select f.taken[1] into v_taken
        from pglimit._take_lanes(7, v_queue, 2147483647, 1) f;
    end if;
    v_now := clock_timestamp();
    v_ends := v_now + enqueue_permit.deadline;
    select p.ctid, p.queue_tag, p.ends_at
    into v_state, v_served, v_until
    from pglimit.permits p
    where p.pool = v_queue and p.lane = 0
    order by p.turn desc
    limit 1;
    if v_state is null then
        insert into pglimit.permits (
            pool, lane, turn, permit_id, expires_at, row_count, queue_tag, ends_at)
        values (
            v_queue, 0, (date_part('epoch', v_now) * 1000000)::bigint, 0, '-infinity', 0, 0,
            v_ends);
    elsif v_until < v_ends then
        update pglimit.permits p
        set turn = greatest(p.turn + 1, (date_part('epoch', v_now) * 1000000)::bigint),
            ends_at = v_ends
        where p.ctid = v_state;
    end if;
    v_poll_after := pglimit._poll_after(interval '0 s', v_waiting);
    update pglimit.permits p
    set turn = greatest(p.turn + 1, (date_part('epoch', v_now) * 1000000)::bigint),
        permit_id = (
            select nextval('pglimit.permit_number') + 549755813888 * coalesce(
                (select s.epoch from pglimit.sentinel s where s.singleton),
                pglimit._begin_epoch(null))),
        expires_at = least(v_now + pglimit._patience(v_poll_after), v_ends),
        row_count = 1,
        changes = case when p.changes < 8 then p.changes + 1 else 0 end,
        swept_turn = case when p.changes < 8 then p.swept_turn else p.turn end,
        claimed_at = v_now,
        lease = pglimit._patience(v_poll_after),
        ends_at = v_ends,
        weight = enqueue_permit.weight,
        for_pool = v_for,
        note = enqueue_permit.note,
        queue_tag = greatest(v_served, v_last, 0)
            + enqueue_permit.weight::double precision / coalesce(v_share, 1),
        ahead = v_waiting,
        full_pool = null,
        asked_caps = array[
            enqueue_permit.holder_cap, enqueue_permit.endpoint_cap,
            enqueue_permit.installation_cap],
        asked_lease = enqueue_permit.lease
    where p.ctid = v_taken
    returning p.permit_id into v_id;
    return row(
        true, 'waiting', v_id, v_waiting, v_poll_after, v_ends, null, null)::pglimit.ticket_row;
end
$$;

comment on function pglimit.enqueue_permit(
    text, text, bigint, bigint, bigint, interval, bigint, interval, jsonb, text) is
    'Draws a ticket for poll_ticket, good for the deadline from now as long as it is polled. '
    'One row; a full queue is a row with enqueued = false. '
    'PGL01 invalid argument, PGL02 unknown endpoint, PGL03 wrong transaction, '
    '55P03 after 1 s of waiting.';

revoke all on function pglimit.enqueue_permit(
    text, text, bigint, bigint, bigint, interval, bigint, interval, jsonb, text) from public;
