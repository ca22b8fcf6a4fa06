-- Extends a live permit: all of its rows or none. A lapsed permit stays lapsed, for its lanes may
-- be somebody else's. Without a lease argument the lease of the claim is given again. Writes:
-- permits. Locks: the permit's rows, in the order of claims (pool, lane), before it looks at the
-- clock: in index order it would deadlock with a release.
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
    v_lease interval;
    v_rows integer;
    v_row_count integer;
    v_expires timestamptz;
    v_claimed_lease interval;
    v_now timestamptz;
begin
    if current_setting('transaction_isolation') <> 'read committed'
        or current_setting('transaction_read_only') <> 'off'
        or pg_current_xact_id_if_assigned() is not null
    then
        perform pglimit._check_transaction('renew_permit');
    end if;
    if renew_permit.permit_id is null then
        raise exception using
            errcode = 'PGL01',
            message = 'permit_id is null',
            detail = 'A permit is renewed by the permit_id that claim_permit returned.',
            hint = 'A refused claim has no permit_id: check granted first.';
    end if;
    if renew_permit.lease is not null then
        v_lease := pglimit._fixed_interval('lease', renew_permit.lease);
    end if;
    if renew_permit.permit_id <= 0 then
        return row(false, 'unknown', null)::pglimit.renew_row;
    end if;
    -- a lapsed permit is answered without its locks: its lanes may be wanted by claims, and a claim
    -- that holds one of them while this holds another would wait for this, and this for the claim
    select min(p.expires_at)
    into v_expires
    from pglimit.permits p
    where p.permit_id = renew_permit.permit_id;
    if v_expires > '-infinity' and v_expires <= clock_timestamp() then
        return row(false, 'lapsed', v_expires)::pglimit.renew_row;
    end if;
    select count(*), max(x.row_count), min(x.expires_at), max(x.lease)
    into v_rows, v_row_count, v_expires, v_claimed_lease
    from (
        select p.row_count, p.expires_at, p.lease
        from pglimit.permits p
        where p.permit_id = renew_permit.permit_id
        order by p.pool desc, p.lane
        for update
    ) x;
    v_now := clock_timestamp();
    if v_rows = 0 or v_expires = '-infinity' then
        return row(false, 'unknown', null)::pglimit.renew_row;
    end if;
    if v_expires <= v_now or v_rows < v_row_count then
        return row(false, 'lapsed', v_expires)::pglimit.renew_row;
    end if;
    v_expires := v_now + coalesce(v_lease, v_claimed_lease);
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
