-- Extends a live permit: all of its rows or none. A lapsed permit stays lapsed, for its lanes may
-- be somebody else's. Without a lease argument the lease of the claim is given again; never past
-- what the endpoint's longest allowed when the permit was claimed. Writes:
-- permits. Locks: the permit's row; where it has several, see _lock_permit. The conditions stand in
-- the update, so they are looked at again, with a new clock, after a wait for the lock.
create or replace function pglimit.renew_permit(
    permit_id bigint,
    lease interval default null
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
    v_lease interval := renew_permit.lease;
    v_state text;
    v_claimed_lease interval;
    v_ends_at timestamptz;
    v_expires timestamptz;
begin
    if (
        current_setting('transaction_isolation') = 'read committed'
        and current_setting('transaction_read_only') = 'off'
        and pg_current_xact_id_if_assigned() is null
        and renew_permit.permit_id > 0
    ) is not true then
        perform pglimit._check_transaction('renew_permit');
        if renew_permit.permit_id is null then
            raise exception using
                errcode = 'PGL01',
                message = 'permit_id is null',
                detail = 'A permit is renewed by the permit_id that claim_permit returned.',
                hint = 'A refused claim has no permit_id: check granted first.';
        end if;
    end if;
    if v_lease is not null then
        v_lease := pglimit._fixed_interval('lease', v_lease);
    end if;
    if renew_permit.permit_id <= 0 then
        return row(false, 'unknown', null)::pglimit.renew_row;
    end if;
    update pglimit.permits p
    set expires_at = least(clock_timestamp() + coalesce(v_lease, p.lease), p.ends_at)
    where p.permit_id = renew_permit.permit_id
        and p.row_count = 1
        and p.expires_at > clock_timestamp()
    returning p.expires_at into v_expires;
    if found then
        return row(true, 'renewed', v_expires)::pglimit.renew_row;
    end if;
    select l.state, l.expires_at, l.lease, l.ends_at
    into v_state, v_expires, v_claimed_lease, v_ends_at
    from pglimit._lock_permit(renew_permit.permit_id, null) l;
    if v_state <> 'live' then
        return row(
            false, v_state, case when v_state = 'lapsed' then v_expires end)::pglimit.renew_row;
    end if;
    v_expires := least(clock_timestamp() + coalesce(v_lease, v_claimed_lease), v_ends_at);
    update pglimit.permits p
    set expires_at = v_expires
    where p.permit_id = renew_permit.permit_id;
    return row(true, 'renewed', v_expires)::pglimit.renew_row;
end
$$;

comment on function pglimit.renew_permit(bigint, interval) is
    'Extends the lease of a live permit. One row: renewed, lapsed or unknown. '
    'PGL01 invalid argument, PGL03 wrong transaction, 55P03 after 1 s of waiting.';

revoke all on function pglimit.renew_permit(bigint, interval) from public;
