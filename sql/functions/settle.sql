-- Settles a hold: its charge becomes what it was. What was charged too much is given back of the
-- window it was charged in, and of no other; what is missing is charged to the present window,
-- whatever is left there. Once: of a hold that is settled, has lapsed or is not known nothing
-- changes, so a call whose reply was lost is made again.
-- Writes: holds or durable_holds (one row); a counter, as _hit_special. Locks: the hold, then the
-- counter as _hit_special. purge locks in that order too, and waits for neither.
-- Safe under concurrency because it decides twice: by a plain read, and by the hold under its lock
-- with a fresh clock; whoever came first has left it settled, or returned after it lapsed.
create or replace function pglimit.settle(hold_id bigint, actual bigint)
returns pglimit.settle_row
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
as $$
#variable_conflict use_column
declare
    v_hold pglimit.holds;
    v_durable boolean;
    v_reason text;
    v_row pglimit.hit_row;
begin
    if (
        current_setting('transaction_isolation') = 'read committed'
        and current_setting('transaction_read_only') = 'off'
        and pg_current_xact_id_if_assigned() is null
    ) is not true then
        perform pglimit._check_transaction('settle');
    end if;
    if settle.hold_id is null then
        raise exception using
            errcode = 'PGL01',
            message = 'hold_id is null',
            detail = 'A hold is settled by the hold_id that pglimit.hold returned.',
            hint = 'A refused hold charged nothing: there is nothing to settle.';
    end if;
    if settle.actual is null or settle.actual < 0 then
        raise exception using
            errcode = 'PGL01',
            message = format('actual of %s is out of range', coalesce(settle.actual::text, 'null')),
            detail = 'It is what was used in the end: nothing or more.',
            hint = 'Pass actual => 0 to give all of it back.';
    end if;
    if settle.hold_id = 0 then
        return row(true, 'settled', null, null)::pglimit.settle_row;
    end if;

    select h.* into v_hold from pglimit.holds h where h.hold_id = settle.hold_id;
    if not found then
        select h.* into v_hold from pglimit.durable_holds h where h.hold_id = settle.hold_id;
        v_durable := found;
    end if;
    for v_look in 1..2 loop
        if v_hold.hold_id is null then
            return row(false, 'unknown', null, null)::pglimit.settle_row;
        end if;
        v_reason := case
            when v_hold.actual is not null then 'again'
            when v_hold.expires_at <= clock_timestamp() then 'lapsed'
        end;
        exit when v_look = 2 or v_reason is not null;
        if v_durable then
            select h.* into v_hold
            from pglimit.durable_holds h
            where h.hold_id = settle.hold_id
            for update;
        else
            select h.* into v_hold
            from pglimit.holds h
            where h.hold_id = settle.hold_id
            for update;
        end if;
    end loop;

    if v_reason is null then
        if v_durable then
            -- what is answered is on disk, whatever the session says
            perform set_config('synchronous_commit', 'on', true)
            where current_setting('synchronous_commit') <> 'remote_apply';
            update pglimit.durable_holds h
            set actual = settle.actual
            where h.hold_id = settle.hold_id;
        else
            update pglimit.holds h
            set actual = settle.actual
            where h.hold_id = settle.hold_id;
        end if;
    end if;
    if v_hold.max_hits is null and not exists (
        select
        from pglimit.limits l
        where l.tenant in (v_hold.tenant, '') and l.limit_name = v_hold.limit_name
    ) then
        -- the limit is gone: nothing is counted by it
        return row(
            v_reason is distinct from 'lapsed', coalesce(v_reason, 'settled'), null,
            null)::pglimit.settle_row;
    end if;
    v_row := pglimit._hit_special(
        v_hold.limit_name, v_hold.subject, v_hold.max_hits, v_hold.per,
        case when v_reason is null then settle.actual - v_hold.charged else 0 end,
        v_hold.algorithm, v_hold.burst, v_hold.tenant,
        look_only => v_reason is not null or settle.actual = v_hold.charged,
        forced => true, hold => v_hold);
    return row(
        v_reason is distinct from 'lapsed',
        coalesce(v_reason, 'settled'),
        greatest(v_row.remaining, 0),
        greatest(-v_row.remaining, 0))::pglimit.settle_row;
end
$$;

comment on function pglimit.settle(bigint, bigint) is
    'Corrects the charge of a hold to what it was. One row: settled, or again (it was before), '
    'lapsed or unknown, which change nothing. '
    'PGL01 invalid argument, PGL03 wrong transaction, 55P03 after 1 s of waiting.';

revoke all on function pglimit.settle(bigint, bigint) from public;
