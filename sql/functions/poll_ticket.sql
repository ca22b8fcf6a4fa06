-- Asks whether a ticket's turn has come, and claims its permit when it has. Until then a poll costs
-- no more than a refused claim: it looks first at the pool that was full the last time, and writes
-- only to extend the ticket's life, about every third poll. After the grant a further poll has the
-- same permit as long as that lives. Writes: permits (the ticket; what claim_permit writes). Locks:
-- the ticket's row without waiting, when it writes; what claim_permit locks for a ticket.
create or replace function pglimit.poll_ticket(ticket bigint)
returns pglimit.poll_row
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
    v_seat pglimit.permits;
    v_tenant text;
    v_endpoint text;
    v_holder text;
    v_row pglimit.endpoints;
    v_cap bigint;
    v_pool text;
    v_in_use bigint;
    v_free_at timestamptz;
    v_turn boolean := true;
    v_ahead bigint;
    v_reason text;
    v_retry interval;
    v_claim pglimit.claim_row;
    v_now timestamptz;
    v_poll_after interval;
begin
    if (
        current_setting('transaction_isolation') = 'read committed'
        and current_setting('transaction_read_only') = 'off'
        and pg_current_xact_id_if_assigned() is null
        and poll_ticket.ticket > 0
    ) is not true then
        perform pglimit._check_transaction('poll_ticket');
        if poll_ticket.ticket is null then
            raise exception using
                errcode = 'PGL01',
                message = 'ticket is null',
                detail = 'A ticket is polled by the number that enqueue_permit returned.',
                hint = 'A full queue gives no ticket: check enqueued first.';
        end if;
    end if;
    select p.* into v_seat
    from pglimit.permits p
    where p.permit_id = poll_ticket.ticket and p.queue_tag is not null;
    v_now := clock_timestamp();
    if (v_seat.expires_at > v_now) is not true then
        -- granted before, when the answer was lost; else it is over
        select p.for_pool, p.pool, p.permit_id, p.expires_at
        into v_seat.for_pool, v_seat.pool, v_claim.permit_id, v_claim.expires_at
        from pglimit.permits p
        where p.request = pglimit._check_ticket(poll_ticket.ticket, null)
        order by p.permit_id desc
        limit 1;
        if v_claim.expires_at > v_now then
            select e.time_bound, e.row_cap, e.on_outage, e.limit_version
            into v_claim.time_bound, v_claim.row_cap, v_claim.on_outage, v_claim.limit_version
            from pglimit.endpoints e
            where e.tenant in (split_part(coalesce(v_seat.for_pool, v_seat.pool), e'\x1f', 1), '')
                and e.endpoint = split_part(coalesce(v_seat.for_pool, v_seat.pool), e'\x1f', 2)
            order by e.tenant desc
            limit 1;
            return row(
                true, 'granted', v_claim.permit_id, v_claim.expires_at, null, null, null, null,
                null, v_claim.time_bound, v_claim.row_cap, v_claim.on_outage,
                v_claim.limit_version, null)::pglimit.poll_row;
        end if;
        return row(
            false,
            case
                when v_claim.expires_at is not null or v_seat.expires_at = '-infinity'
                    or v_seat.expires_at is null then 'unknown'
                when v_seat.ends_at <= v_now then 'deadline'
                else 'lapsed'
            end,
            null, null, null, null, null, null, null, null, null, null, null,
            null)::pglimit.poll_row;
    end if;
    v_tenant := split_part(v_seat.for_pool, e'\x1f', 1);
    v_endpoint := split_part(v_seat.for_pool, e'\x1f', 2);
    v_holder := substr(v_seat.for_pool, length(v_tenant) + length(v_endpoint) + 3);
    select e.* into v_row
    from pglimit.endpoints e
    where e.tenant in (v_tenant, '') and e.endpoint = v_endpoint
    order by e.tenant desc
    limit 1;

    -- the pool that was full the last time, and then whose turn it is, before anything is locked
    if v_seat.full_pool is not null and (v_row.mode <> 'enforce') is not true then
        v_pool := case v_seat.full_pool
            when 1 then v_seat.for_pool
            when 2 then v_tenant || e'\x1f' || v_endpoint || e'\x1f'
            else e'\x1f\x1f'
        end;
        v_cap := coalesce(
            v_seat.asked_caps[v_seat.full_pool],
            case v_seat.full_pool when 1 then v_row.holder_cap when 2 then v_row.endpoint_cap end);
        if v_seat.full_pool = 3 and v_cap is null and v_row.in_installation then
            select i.installation_cap into v_cap from pglimit.installation i where i.singleton;
        elsif v_seat.full_pool = 1 and v_row.overridden then
            select coalesce(r.holder_cap, v_cap)
            into v_cap
            from pglimit._claim_rule(v_tenant, v_endpoint, v_holder) r;
        end if;
        select f.in_use, f.free_at
        into v_in_use, v_free_at
        from pglimit._find_lanes(v_pool, v_cap, v_seat.weight) f;
        if v_seat.weight > v_cap then
            -- lowered since
            v_reason := 'never';
        elsif v_in_use + v_seat.weight > v_cap then
            v_reason := (array['holder', 'endpoint', 'installation'])[v_seat.full_pool];
            v_retry := greatest(v_free_at - clock_timestamp(), interval '1 microsecond');
        else
            select w.turn, w.ahead
            into v_turn, v_ahead
            from pglimit._wait_turn(
                v_tenant, v_endpoint, v_holder, poll_ticket.ticket, v_seat.weight,
                case when v_seat.full_pool > 1 then v_cap - v_in_use end,
                case when v_seat.full_pool = 1 then v_cap - v_in_use end) w;
            if not v_turn then
                v_reason := 'queue';
                v_retry := interval '1 s';
            end if;
        end if;
    end if;
    if v_reason is null then
        v_claim := pglimit.claim_permit(
            endpoint => v_endpoint,
            holder => v_holder,
            holder_cap => v_seat.asked_caps[1],
            endpoint_cap => v_seat.asked_caps[2],
            installation_cap => v_seat.asked_caps[3],
            lease => v_seat.asked_lease,
            weight => v_seat.weight,
            note => v_seat.note,
            tenant => v_tenant,
            ticket => poll_ticket.ticket);
        if v_claim.granted then
            return row(
                true, v_claim.reason, v_claim.permit_id, v_claim.expires_at, null, null,
                v_claim.cap, v_claim.in_use, v_claim.retry_after, v_claim.time_bound,
                v_claim.row_cap, v_claim.on_outage, v_claim.limit_version,
                v_claim.shadow_reason)::pglimit.poll_row;
        end if;
        v_reason := v_claim.reason;
        v_cap := v_claim.cap;
        v_in_use := v_claim.in_use;
        v_retry := v_claim.retry_after;
    end if;
    if v_reason in ('never', 'lapsed', 'no ticket') then
        -- nothing to wait for; those behind need not wait for it either
        update pglimit.permits p
        set expires_at = '-infinity'
        where p.permit_id = poll_ticket.ticket and p.expires_at > clock_timestamp();
        return row(
            false, case v_reason when 'no ticket' then 'unknown' else v_reason end, null, null,
            null, null, v_cap, v_in_use, null, v_row.time_bound, v_row.row_cap, v_row.on_outage,
            v_row.limit_version, null)::pglimit.poll_row;
    end if;

    v_now := clock_timestamp();
    v_poll_after := pglimit._poll_after(
        v_now - v_seat.claimed_at, coalesce(v_ahead, v_seat.ahead));
    if v_seat.expires_at < v_now + v_poll_after * 2 + interval '1 s'
        or v_seat.full_pool is null
        or v_ahead is not null
    then
        if v_ahead is null then
            select w.ahead into v_ahead
            from pglimit._wait_turn(
                v_tenant, v_endpoint, v_holder, poll_ticket.ticket, v_seat.weight, null, null) w;
            v_poll_after := pglimit._poll_after(v_now - v_seat.claimed_at, v_ahead);
        end if;
        update pglimit.permits p
        set expires_at = greatest(
                p.expires_at, least(v_now + pglimit._patience(v_poll_after), p.ends_at)),
            ahead = v_ahead,
            full_pool = case v_reason
                when 'holder' then 1
                when 'endpoint' then 2
                when 'installation' then 3
                else coalesce(p.full_pool, 2)
            end
        where p.ctid = (
            select l.ctid
            from pglimit.permits l
            where l.permit_id = poll_ticket.ticket and l.expires_at > clock_timestamp()
            for update skip locked);
    end if;
    return row(
        false, v_reason, null, null, coalesce(v_ahead, v_seat.ahead), v_poll_after, v_cap,
        v_in_use, v_retry, v_row.time_bound, v_row.row_cap, v_row.on_outage,
        v_row.limit_version, null)::pglimit.poll_row;
end
$$;

comment on function pglimit.poll_ticket(bigint) is
    'Claims the permit of a ticket when its turn has come, or says when to ask again. One row. '
    'PGL01 invalid argument, PGL03 wrong transaction, 55P03 after 1 s of waiting.';

revoke all on function pglimit.poll_ticket(bigint) from public;
