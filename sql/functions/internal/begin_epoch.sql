-- Begins a new epoch: after a crash or promotion emptied the unlogged tables, and after a restore.
-- Writes: installation, sentinel; permits after a loss. Locks: the creation lock of the
-- installation's pool, then the installation's row, both after every other lock of a claim. The
-- epoch is on disk before any permit_id carries it: the sentinel is seen by others only with the
-- commit, and that commit is synchronous whatever the session says. Returns the epoch in force.
-- A loss is a missing sentinel where there was an epoch before. Then the first lanes of the
-- installation's pool, as many as were in use when purge last looked, are taken by nobody until the
-- grace time is over: claims see them in use, and reassert_permit takes them over. Nobody can make
-- lanes of that pool before: whoever finds none begins the epoch first, under the same lock. Their
-- row_count is 1, as of a permit, so that under a lowered cap one that lapses while it is being
-- taken over counts as in use (see _retire_lapsed).
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
    v_reserve bigint;
    v_grace interval;
    v_lost boolean;
    v_now timestamptz;
begin
    perform pglimit._lock_creation(3, e'\x1f\x1f');
    -- bounded, for a claim waits meanwhile: ten thousand lanes take some 50 ms
    select i.epoch, least(i.live_known, i.installation_cap, 10000), i.grace
    into v_epoch, v_reserve, v_grace
    from pglimit.installation i
    where i.singleton
    for update;
    select s.epoch into v_present from pglimit.sentinel s where s.singleton;
    if v_present is distinct from expected then
        return v_present;
    end if;
    v_now := clock_timestamp();
    v_lost := v_present is null and v_epoch > 0;
    v_epoch := greatest(
        v_epoch + 1,
        floor(date_part('epoch', v_now - timestamptz '2025-01-01 00:00:00+00') / 60)::bigint);
    perform set_config('synchronous_commit', 'on', true)
    where current_setting('synchronous_commit') <> 'remote_apply';
    update pglimit.installation i
    set epoch = v_epoch,
        epoch_since = v_now,
        lost_at = case when v_lost then v_now else i.lost_at end,
        losses = case when v_lost then i.losses + 1 else i.losses end
    where i.singleton;
    insert into pglimit.sentinel as s (epoch)
    values (v_epoch)
    on conflict on constraint sentinel_pkey do update set epoch = excluded.epoch;
    if v_lost and v_reserve > 0 and v_grace > '0 s' then
        insert into pglimit.permits (pool, lane, turn, permit_id, expires_at, row_count)
        select
            e'\x1f\x1f',
            g.lane,
            (date_part('epoch', v_now) * 1000000)::bigint,
            0,
            v_now + v_grace,
            1
        from generate_series(1, v_reserve::integer) g (lane)
        where not exists (select from pglimit.permits p where p.pool = e'\x1f\x1f');
    end if;
    return v_epoch;
end
$$;

comment on function pglimit._begin_epoch(bigint) is
    'internal: raises the epoch of permit_id unless somebody else has since `expected` was read, '
    'and keeps room for what was live before a loss';

revoke all on function pglimit._begin_epoch(bigint) from public;
