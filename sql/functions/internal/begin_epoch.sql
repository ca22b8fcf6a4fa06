-- Begins a new epoch: after a crash or promotion emptied the unlogged tables, and after a restore.
-- Writes: installation, sentinel. Locks: the installation's row, after every lane of a claim. The
-- epoch is on disk before any permit_id carries it: the sentinel is seen by others only with the
-- commit, and that commit is synchronous whatever the session says. Returns the epoch in force.
create or replace function pglimit._begin_epoch(expected bigint)
returns bigint
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_epoch bigint;
    v_present bigint;
begin
    select i.epoch into v_epoch from pglimit.installation i where i.singleton for update;
    select s.epoch into v_present from pglimit.sentinel s where s.singleton;
    if v_present is distinct from expected then
        return v_present;
    end if;
    v_epoch := greatest(
        v_epoch + 1,
        floor(date_part('epoch', clock_timestamp() - timestamptz '2025-01-01 00:00:00+00')
            / 60)::bigint);
    perform set_config('synchronous_commit', 'on', true);
    update pglimit.installation i
    set epoch = v_epoch, epoch_since = clock_timestamp()
    where i.singleton;
    insert into pglimit.sentinel as s (epoch)
    values (v_epoch)
    on conflict on constraint sentinel_pkey do update set epoch = excluded.epoch;
    return v_epoch;
end
$$;

comment on function pglimit._begin_epoch(bigint) is
    'internal: raises the epoch of permit_id unless somebody else has since `expected` was read';

revoke all on function pglimit._begin_epoch(bigint) from public;
