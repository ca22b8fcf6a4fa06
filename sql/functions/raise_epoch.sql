-- Begins a new epoch of permit_id, for after a restore: ids claimed from then on are greater than
-- any that the restored backup can have seen. Permits that are live stay live. Writes:
-- installation, sentinel, limit_versions, changes. Locks: the creation lock of the installation's
-- pool, as _begin_epoch does, then the installation's row, before it looks at the epoch, so that of
-- two calls each raises it. An epoch that begins because a crash emptied the tables is nobody's
-- doing, and not recorded; where this call is the first to find them empty, the loss counts too.
create or replace function pglimit.raise_epoch()
returns bigint
language plpgsql
volatile
parallel unsafe
called on null input
security definer
set search_path = pg_catalog, pg_temp
set row_security = on
set lock_timeout = '1s'
as $$
#variable_conflict use_column
declare
    v_before bigint;
    v_epoch bigint;
begin
    if current_setting('transaction_read_only') <> 'off' then
        perform pglimit._check_transaction('raise_epoch');
    end if;
    perform pglimit._lock_creation(3, e'\x1f\x1f');
    select i.epoch into v_before from pglimit.installation i where i.singleton for update;
    v_epoch := pglimit._begin_epoch((select s.epoch from pglimit.sentinel s where s.singleton));
    perform pglimit._record_change(
        'raise_epoch', '', '',
        jsonb_build_object('epoch', v_before),
        jsonb_build_object('epoch', v_epoch));
    return v_epoch;
end
$$;

comment on function pglimit.raise_epoch() is
    'Begins a new epoch, so that every later permit_id is greater than any before. '
    'Returns the epoch. PGL03 read-only or standby.';

revoke all on function pglimit.raise_epoch() from public;
