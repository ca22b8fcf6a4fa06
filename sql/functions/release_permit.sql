-- Releases a permit by its id: the rows stay, as free lanes. Releasing again changes nothing.
-- Writes: permits. Locks: the permit's rows, in the order of claims (pool, lane), before it looks
-- at the clock.
create or replace function pglimit.release_permit(
    permit_id bigint,
    holder text default null
)
returns pglimit.release_row
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
    v_rows integer;
    v_row_count integer;
    v_expires timestamptz;
    v_for text;
begin
    if current_setting('transaction_isolation') <> 'read committed'
        or current_setting('transaction_read_only') <> 'off'
        or pg_current_xact_id_if_assigned() is not null
    then
        perform pglimit._check_transaction('release_permit');
    end if;
    if release_permit.permit_id is null then
        raise exception using
            errcode = 'PGL01',
            message = 'permit_id is null',
            detail = 'A permit is released by the permit_id that claim_permit returned.',
            hint = 'A refused claim has no permit_id: check granted first.';
    end if;
    if release_permit.permit_id <= 0 then
        return row(false, 'unknown')::pglimit.release_row;
    end if;
    -- a lapsed permit is answered without its locks: its lanes may be wanted by claims, and a claim
    -- that holds one of them while this holds another would wait for this, and this for the claim
    select min(p.expires_at)
    into v_expires
    from pglimit.permits p
    where p.permit_id = release_permit.permit_id;
    if v_expires > '-infinity' and v_expires <= clock_timestamp() then
        return row(false, 'lapsed')::pglimit.release_row;
    end if;
    select
        count(*), max(x.row_count), min(x.expires_at),
        max(coalesce(x.for_pool, x.pool)) filter (where x.claimed_at is not null)
    into v_rows, v_row_count, v_expires, v_for
    from (
        select p.pool, p.row_count, p.expires_at, p.claimed_at, p.for_pool
        from pglimit.permits p
        where p.permit_id = release_permit.permit_id
        order by p.pool desc, p.lane
        for update
    ) x;
    if v_rows = 0 or v_expires = '-infinity' then
        return row(false, 'unknown')::pglimit.release_row;
    end if;
    -- the holder is what follows the second separator
    if v_for is not null
        and release_permit.holder is not null
        and release_permit.holder is distinct from
            substr(v_for, length(split_part(v_for, e'\x1f', 1))
                + length(split_part(v_for, e'\x1f', 2)) + 3)
    then
        return row(false, 'not holder')::pglimit.release_row;
    end if;
    if v_expires <= clock_timestamp() or v_rows < v_row_count then
        return row(false, 'lapsed')::pglimit.release_row;
    end if;
    update pglimit.permits p
    set expires_at = '-infinity'
    where p.permit_id = release_permit.permit_id;
    return row(true, 'released')::pglimit.release_row;
end
$$;

comment on function pglimit.release_permit(bigint, text) is
    'Releases a live permit, when holder is given only if it is that holder''s. '
    'One row: released, lapsed, unknown or not holder. '
    'PGL01 invalid argument, PGL03 wrong transaction, 55P03 after 1 s of waiting.';

revoke all on function pglimit.release_permit(bigint, text) from public;
