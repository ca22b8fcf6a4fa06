-- Releases all permits of a holder at an endpoint that are live when it looks, all or none, and
-- records it once, with who did it, why and which they were. What the holder claims meanwhile stays
-- his. Writes: permits, creation_locks, and when it released any limit_versions and changes.
-- Locks: a row of creation_locks, so that there is one of these at a time; then the rows of one
-- permit after the other, by ascending permit_id, each by _lock_permit: the head row, for which it
-- waits, then the others without waiting. So from the second permit on it waits for a row while it
-- holds rows, as nothing else here does. Whom it waits for does not wait for it in turn:
--   * a claim never waits for a row of permits, only for creation locks, which are others than
--     this one. It passes over rows locked here, and counts them as in use until the commit;
--   * a renewal or a release of one permit waits for its head while it holds nothing, and then
--     looks whether the others are free. What is locked here by mistake (a lane that got a new
--     holder before the lock was had) is of a permit claimed or reasserted after the look: nobody
--     who holds rows of that one is waited for;
--   * two of these would wait in a circle over such a lane, though both go by ascending permit_id:
--     hence one at a time.
-- Left are a claim that holds the head waited for here (it lapsed between the look and the lock, or
-- the claim lost a race for it) and looks for a slot that lapsed while it was locked here, and
-- callers with several calls in one transaction. A look is no wait that the server sees; it ends
-- within a second with 55P03, and so does any wait here, which then releases nothing.
create or replace function pglimit.release_holder(
    endpoint text,
    holder text,
    why text,
    tenant text default null
)
returns bigint
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
    v_tenant text := coalesce(release_holder.tenant, current_setting('pglimit.tenant', true), '');
    v_for text;
    v_found bigint[];
    v_id bigint;
    v_state text;
    v_released bigint := 0;
    v_ids bigint[] := array[]::bigint[];
begin
    if (
        current_setting('transaction_isolation') = 'read committed'
        and current_setting('transaction_read_only') = 'off'
        and pg_current_xact_id_if_assigned() is null
    ) is not true then
        perform pglimit._check_transaction('release_holder');
    end if;
    perform pglimit._check_names(
        'endpoint', release_holder.endpoint, 'holder', release_holder.holder, v_tenant);
    perform pglimit._check_why(release_holder.why);
    perform pglimit._lock_creation(5, 'release_holder');
    v_for := v_tenant || e'\x1f' || release_holder.endpoint || e'\x1f' || release_holder.holder;
    select array_agg(p.permit_id order by p.permit_id)
    into v_found
    from pglimit.permits p
    where p.claimed_at is not null
        and coalesce(p.for_pool, p.pool) = v_for
        and p.expires_at > clock_timestamp();
    foreach v_id in array coalesce(v_found, array[]::bigint[]) loop
        select l.state into v_state from pglimit._lock_permit(v_id, release_holder.holder) l;
        continue when v_state <> 'live';
        update pglimit.permits p set expires_at = '-infinity' where p.permit_id = v_id;
        v_released := v_released + 1;
        if v_released <= 1000 then
            v_ids := v_ids || v_id;
        end if;
    end loop;
    if v_released > 0 then
        perform pglimit._record_change(
            'release_holder', v_tenant, release_holder.endpoint,
            jsonb_build_object(
                'holder', release_holder.holder,
                'permits', v_released,
                'permit_ids', v_ids),   -- the first thousand
            null, release_holder.why);
    end if;
    return v_released;
end
$$;

comment on function pglimit.release_holder(text, text, text, text) is
    'Releases all live permits of a holder at an endpoint, and records who did it and why. '
    'Returns how many. '
    'PGL01 invalid argument, PGL03 wrong transaction, 55P03 after 1 s of waiting.';

revoke all on function pglimit.release_holder(text, text, text, text) from public;
