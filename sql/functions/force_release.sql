-- Releases a live permit whoever holds it, and records who did it and why. Writes: permits, and
-- when it released limit_versions and changes. Locks: the permit's rows, see _lock_permit: its head
-- row, for which it waits while it holds nothing, then the others without waiting. A renewal that
-- comes first is waited for and undone; one that comes later waits and finds the permit gone.
create or replace function pglimit.force_release(
    permit_id bigint,
    why text
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
    v_state text;
    v_for text;
    v_tenant text;
    v_endpoint text;
    v_before jsonb;
begin
    if (
        current_setting('transaction_isolation') = 'read committed'
        and current_setting('transaction_read_only') = 'off'
        and pg_current_xact_id_if_assigned() is null
    ) is not true then
        perform pglimit._check_transaction('force_release');
    end if;
    if force_release.permit_id is null then
        raise exception using
            errcode = 'PGL01',
            message = 'permit_id is null',
            detail = 'A permit is released by the permit_id that claim_permit returned.',
            hint = 'Look for it: select * from pglimit.list_permits();';
    end if;
    perform pglimit._check_why(force_release.why);
    if force_release.permit_id <= 0 then
        return row(false, 'unknown')::pglimit.release_row;
    end if;
    select l.state
    into v_state
    from pglimit._lock_permit(force_release.permit_id, null) l;
    if v_state <> 'live' then
        return row(false, v_state)::pglimit.release_row;
    end if;
    select
        coalesce(p.for_pool, p.pool),
        jsonb_build_object(
            'permit_id', p.permit_id,
            'weight', p.weight,
            'claimed_at', p.claimed_at,
            'expires_at', p.expires_at)
    into v_for, v_before
    from pglimit.permits p
    where p.permit_id = force_release.permit_id and p.claimed_at is not null;
    v_tenant := split_part(v_for, e'\x1f', 1);
    v_endpoint := split_part(v_for, e'\x1f', 2);
    update pglimit.permits p
    set expires_at = '-infinity'
    where p.permit_id = force_release.permit_id;
    perform pglimit._record_change(
        'force_release', v_tenant, v_endpoint,
        v_before || jsonb_build_object(
            'holder', substr(v_for, length(v_tenant) + length(v_endpoint) + 3)),
        null, force_release.why);
    return row(true, 'released')::pglimit.release_row;
end
$$;

comment on function pglimit.force_release(bigint, text) is
    'Releases a live permit whoever holds it, and records who did it and why. '
    'One row: released, lapsed or unknown. '
    'PGL01 invalid argument, PGL03 wrong transaction, 55P03 after 1 s of waiting.';

revoke all on function pglimit.force_release(bigint, text) from public;
