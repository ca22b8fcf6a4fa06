-- Releases a permit by its id: the rows stay, as free lanes. Releasing again changes nothing.
-- Writes: permits. Locks: the permit's row; where it has several, see _lock_permit. The conditions
-- stand in the update, so they are looked at again, with a new clock, after a wait for the lock.
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
    v_state text;
begin
    if (
        current_setting('transaction_isolation') = 'read committed'
        and current_setting('transaction_read_only') = 'off'
        and pg_current_xact_id_if_assigned() is null
        and release_permit.permit_id > 0
    ) is not true then
        perform pglimit._check_transaction('release_permit');
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
    end if;
    if release_permit.holder is null then
        update pglimit.permits p
        set expires_at = '-infinity'
        where p.permit_id = release_permit.permit_id
            and p.row_count = 1
            and p.expires_at > clock_timestamp();
        if found then
            return row(true, 'released')::pglimit.release_row;
        end if;
    end if;
    select l.state
    into v_state
    from pglimit._lock_permit(release_permit.permit_id, release_permit.holder) l;
    if v_state <> 'live' then
        return row(false, v_state)::pglimit.release_row;
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
