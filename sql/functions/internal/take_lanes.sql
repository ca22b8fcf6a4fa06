-- Locks `weight` free lanes of a pool, or says that the pool has no room.
-- `kind` is 1, 2 or 3 for the pool of a holder, an endpoint, the installation; callers go in this
-- order. Kind 7 is of the pools of queues and of permits beyond the caps, which come last. `held`
-- are lanes that the caller has locked already, room kept after a crash: those that are still live
-- when all lanes have been read were counted as in use, and are a part of `weight`. Writes: permits
-- (new lanes, free; with lanes above the cap the marks of _retire_lapsed); where it finds the
-- installation's pool empty and no sentinel, the new epoch, so that nobody takes the room that is
-- kept; where it makes lanes of kind 7, too, for the locks of a new epoch come before that pool's.
-- Locks: the pool's creation lock when lanes are made or several are taken, or when the pool seems
-- full under a lowered cap; rows of permits, for which it never waits: a free lane that another
-- claim has locked is passed over, and when nothing else is left this looks again, for at most a
-- second. Lost races mean another look; a refusal is always the result of a whole look. With lanes
-- above the cap, a permit that lapsed while it is being renewed, and lives again with the commit,
-- would be one too many. So what has lapsed counts as in use there, and who would be refused marks
-- first what nobody has locked: under the creation lock, since two that mark would each count what
-- the other has locked, and one would hold lanes that a claim of several waits for.
create or replace function pglimit._take_lanes(
    kind integer,
    pool text,
    cap bigint,
    weight bigint,
    held tid[] default '{}',
    out taken tid[],
    out in_use bigint,
    out free_at timestamptz
)
returns record
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_deadline timestamptz := clock_timestamp() + interval '1 s';
    v_top integer;
    v_tids tid[];
    v_turns bigint[];
    v_locked tid[];
    v_alone boolean := false;
    v_now timestamptz;
    v_lowered boolean := false;
    v_kept bigint := 0;
begin
    taken := _take_lanes.held;
    for v_attempt in 1..100000 loop
        if v_lowered and v_alone then
            perform pglimit._retire_lapsed(_take_lanes.pool);
        end if;
        select f.in_use, f.free_at, f.top, f.tids, f.turns
        into in_use, free_at, v_top, v_tids, v_turns
        from pglimit._find_lanes(
            _take_lanes.pool, _take_lanes.cap, _take_lanes.weight, v_lowered) f;
        if _take_lanes.held <> '{}' then
            -- after the look: one that lapsed in between refuses, and not lets one too many in
            select count(*)
            into v_kept
            from pglimit.permits p
            where p.ctid = any (_take_lanes.held) and p.expires_at > clock_timestamp();
        end if;
        if in_use - v_kept + _take_lanes.weight > _take_lanes.cap then
            if v_lowered and not v_alone then
                -- what has lapsed counts as in use here until it is released
                perform pglimit._lock_creation(_take_lanes.kind, _take_lanes.pool);
                v_alone := true;
                continue;
            end if;
            taken := null;
            return;
        end if;
        if v_top > _take_lanes.cap and not v_lowered then
            v_lowered := true;
            continue;
        end if;
        if _take_lanes.weight > 1 and not v_alone then
            -- two claims that each hold some of the lanes they need would wait for each other
            perform pglimit._lock_creation(_take_lanes.kind, _take_lanes.pool);
            v_alone := true;
            continue;
        end if;
        select array_agg(x.ctid)
        into v_locked
        from (
            select p.ctid
            from unnest(v_tids, v_turns) c (ctid, turn)
            join pglimit.permits p
                on p.ctid = c.ctid
                -- by ctid alone: through the index it would read the dead turns of every lane
                and p.pool || '' = _take_lanes.pool
                and p.turn + 0 = c.turn
                and p.expires_at <= clock_timestamp()
            where p.ctid <> all (taken)
            limit _take_lanes.weight - cardinality(taken)
            for update of p skip locked
        ) x;
        taken := taken || coalesce(v_locked, array[]::tid[]);
        if cardinality(taken) = _take_lanes.weight then
            return;
        end if;
        if v_top < _take_lanes.cap then
            if not v_alone then
                if _take_lanes.kind = 7 and not exists (
                    select from pglimit.sentinel s where s.singleton)
                then
                    -- whose locks come before this pool's
                    perform pglimit._begin_epoch(null);
                end if;
                -- one creator at a time, for the whole pool: with a lock per lane they would wait
                -- in a circle
                perform pglimit._lock_creation(_take_lanes.kind, _take_lanes.pool);
                v_alone := true;
                continue;
            end if;
            if v_top = 0 and _take_lanes.kind = 3 and not exists (
                select from pglimit.sentinel s where s.singleton)
            then
                perform pglimit._begin_epoch(null);
                continue;
            end if;
            v_now := clock_timestamp();
            insert into pglimit.permits (pool, lane, turn, permit_id, expires_at, row_count)
            select
                _take_lanes.pool,
                g.lane,
                (date_part('epoch', v_now) * 1000000)::bigint,
                0,
                '-infinity',
                0
            from generate_series(
                v_top + 1,
                least(
                    _take_lanes.cap,
                    greatest(
                        v_top + greatest(_take_lanes.weight - cardinality(taken), v_top),
                        32))::integer
            ) g (lane);
            continue;
        end if;
        if clock_timestamp() > v_deadline then
            exit;
        end if;
        if v_attempt > 3 then
            perform pg_sleep(0.0005);
        end if;
    end loop;
    raise exception using
        errcode = '55P03',
        message = 'every free slot was locked for a second',
        detail = 'Other claims hold the free slots in transactions that do not end.',
        hint = 'An operator who is a member of pg_monitor too finds them: '
            || 'select * from pglimit.doctor(''1 s'');';
end
$$;

comment on function pglimit._take_lanes(integer, text, bigint, bigint, tid[]) is
    'internal: locks free lanes of a pool; taken is null when the pool has no room';

revoke all on function pglimit._take_lanes(integer, text, bigint, bigint, tid[]) from public;
