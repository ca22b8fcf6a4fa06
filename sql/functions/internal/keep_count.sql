-- Writes the current row of a key: a new one where `counter` has no turn, which the caller may make
-- as he holds the key's creation lock; else the one whose lock he holds, or who holds none gives
-- the `changes` that he read, and it is written only as it was then. Says whether it was. After 64
-- changes in place the row gets a higher turn. Writes: counters, or durable_counters; _hit_special
-- has the former once more, for speed. Locks: that row.
create or replace function pglimit._keep_count(
    key text,
    counter pglimit.counter_state,
    present timestamptz,
    durable boolean,
    changes integer default null
)
returns boolean
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_turn bigint := _keep_count.counter.turn;
    v_new_turn bigint := (date_part('epoch', _keep_count.present) * 1000000)::bigint;
begin
    if durable then
        -- what is answered is on disk, whatever the session says
        perform set_config('synchronous_commit', 'on', true)
        where current_setting('synchronous_commit') <> 'remote_apply';
    end if;
    if v_turn is null then
        _keep_count.counter.key := _keep_count.key;
        _keep_count.counter.turn := v_new_turn;
        _keep_count.counter.changes := 0;
        if durable then
            insert into pglimit.durable_counters select _keep_count.counter.*;
        else
            insert into pglimit.counters select _keep_count.counter.*;
        end if;
    elsif durable then
        update pglimit.durable_counters c
        set turn = case when c.changes < 64 then c.turn else greatest(c.turn + 1, v_new_turn) end,
            changes = case when c.changes < 64 then c.changes + 1 else 0 end,
            used = _keep_count.counter.used,
            window_start = _keep_count.counter.window_start,
            reset_at = _keep_count.counter.reset_at,
            special_reset_at = _keep_count.counter.special_reset_at,
            shadow_refused = _keep_count.counter.shadow_refused,
            overridden = _keep_count.counter.overridden,
            algorithm = _keep_count.counter.algorithm,
            previous = _keep_count.counter.previous,
            open_since = _keep_count.counter.open_since,
            bucket_sums = _keep_count.counter.bucket_sums,
            counted_by = _keep_count.counter.counted_by,
            counted_at = _keep_count.counter.counted_at
        where c.key = _keep_count.key
            and c.turn = v_turn
            and (_keep_count.changes is null or c.changes = _keep_count.changes);
    else
        update pglimit.counters c
        set turn = case when c.changes < 64 then c.turn else greatest(c.turn + 1, v_new_turn) end,
            changes = case when c.changes < 64 then c.changes + 1 else 0 end,
            used = _keep_count.counter.used,
            window_start = _keep_count.counter.window_start,
            reset_at = _keep_count.counter.reset_at,
            special_reset_at = _keep_count.counter.special_reset_at,
            shadow_refused = _keep_count.counter.shadow_refused,
            overridden = _keep_count.counter.overridden,
            algorithm = _keep_count.counter.algorithm,
            previous = _keep_count.counter.previous,
            open_since = _keep_count.counter.open_since,
            bucket_sums = _keep_count.counter.bucket_sums,
            counted_by = _keep_count.counter.counted_by,
            counted_at = _keep_count.counter.counted_at
        where c.key = _keep_count.key
            and c.turn = v_turn
            and (_keep_count.changes is null or c.changes = _keep_count.changes);
    end if;
    return found;
end
$$;

comment on function pglimit._keep_count(
    text, pglimit.counter_state, timestamptz, boolean, integer) is
    'internal: writes the current row of a key';

revoke all on function pglimit._keep_count(
    text, pglimit.counter_state, timestamptz, boolean, integer) from public;
