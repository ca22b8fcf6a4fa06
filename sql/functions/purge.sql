-- Removes pools and counters that nobody came back to: as a whole, and only when all of a pool, or
-- the window of a counter, has been over for installation.purge_after. Removing single lanes or
-- hot keys would bring dead rows that a held snapshot pins back into the scans of claim and hit.
-- Writes: permits, counters, durable_counters, purge_progress.
-- Locks: the progress row (one purge at a time), then, without waiting, a pool's creation lock and
-- its rows, and counters: a claim or hit that is in the way is passed over. Reads at most 1,000
-- blocks of each table a call, for about 100 ms at most, as it keeps its locks to the end; from
-- where the last call stopped, so a call with nothing to do is cheap however large the tables are.
-- No index on the expiry: each renewal would pay.
-- Holds that have lapsed are given back where the limit says so, if their counter is not in use, by
-- the next purge whose pass comes to them: so late by one call while the table has at most 1,000
-- blocks, some 40,000 holds. Holds, settled or not, are removed purge_after after they lapsed.
-- Writes also: holds, durable_holds, counters, durable_counters. Locks also, without waiting: the
-- hold, then its counter.
-- Blocks whose strikes have decayed, ranges that are over, pairs that are known no more and
-- replicas that are gone are removed too, a batch of each a call. Writes also: blocks,
-- block_ranges, known_sign_ins, replicas. Locks also, without waiting: these rows.
-- Changes of limits that all open counters are younger than need no more be carried.
-- Writes also: limit_carries, limits (carries_until). Locks also, without waiting: the limit's row.
-- Last it counts what is live in the installation's pool, which is the room that is kept after a
-- crash, and locks the installation's row for that, without waiting. Where it is the first to find
-- the tables empty it begins a new epoch instead, before all else, for it waits for the locks of
-- that (the creation lock of the installation's pool, the installation's row): who waits must hold
-- no lock of a pool that comes after. Writes also: installation, sentinel, permits.
create or replace function pglimit.purge(batch bigint default 1000)
returns pglimit.purge_row
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
    v_after interval;
    v_cutoff timestamptz;
    v_cutoff_turn bigint;
    v_block bigint;
    v_stop bigint;
    v_blocks bigint;
    v_next_permits bigint := 0;
    v_next_counters bigint := 0;
    v_next_durable bigint := 0;
    v_permits bigint := 0;
    v_counters bigint := 0;
    v_durable bigint := 0;
    v_removed bigint;
    v_pool text;
    v_kind integer;
    v_locked bigint;
    v_deadline timestamptz;
    v_live bigint;
    v_lost boolean;
    v_hold pglimit.holds;
    v_carried record;
    v_next_holds bigint := 0;
    v_next_durable_holds bigint := 0;
    v_holds bigint := 0;
    v_durable_holds bigint := 0;
    v_returned bigint := 0;
    v_more boolean := false;
begin
    if pg_is_in_recovery() then
        raise notice 'this is a standby: nothing to purge here';
        return row(0, 0, false, 0, 0)::pglimit.purge_row;
    end if;
    if current_setting('transaction_isolation') <> 'read committed'
        or current_setting('transaction_read_only') <> 'off'
    then
        perform pglimit._check_transaction('purge');
    end if;
    if purge.batch is null or purge.batch < 1 or purge.batch > 100000 then
        raise exception using
            errcode = 'PGL01',
            message = format('batch of %s is out of range', coalesce(purge.batch::text, 'null')),
            detail = 'One call removes 1 to 100,000 rows of each table.',
            hint = 'Call pglimit.purge(1000) again until more is false.';
    end if;

    insert into pglimit.purge_progress (last_purge_at)
    values (clock_timestamp())
    on conflict on constraint purge_progress_pkey do nothing;
    perform 1 from pglimit.purge_progress g where g.singleton for update skip locked;
    if not found then
        raise notice 'another purge is running';
        return row(0, 0, false, 0, 0)::pglimit.purge_row;
    end if;
    v_lost := not exists (select from pglimit.sentinel s where s.singleton);
    if v_lost then
        perform pglimit._begin_epoch(null);
    end if;
    select i.purge_after into v_after from pglimit.installation i where i.singleton;
    v_cutoff := clock_timestamp() - v_after;
    v_cutoff_turn := (date_part('epoch', v_cutoff) * 1000000)::bigint;

    -- pools with a row in the next blocks, each removed as a whole or not at all
    v_deadline := clock_timestamp() + interval '100 ms';
    v_blocks := pg_relation_size('pglimit.permits') / current_setting('block_size')::bigint;
    select g.permits_block into v_block from pglimit.purge_progress g where g.singleton;
    v_block := case when v_block < v_blocks then v_block else 0 end;
    v_stop := least(v_block + 1000, v_blocks);
    while v_block < v_stop and v_permits < purge.batch and clock_timestamp() < v_deadline loop
        for v_pool in
            select distinct p.pool
            from pglimit.permits p
            where p.ctid >= format('(%s,0)', v_block)::tid
                and p.ctid < format('(%s,0)', v_block + 1)::tid
                and p.expires_at < v_cutoff
                and p.turn < v_cutoff_turn
        loop
            -- no lanes are made meanwhile: a claim that finds these locked would make those above
            -- them, which would stay alone. Where there are lanes, the creation lock has its row.
            v_kind := case
                when v_pool = e'\x1f\x1f' then 3
                when split_part(v_pool, e'\x1f', 2) = '' then 7
                -- not by the last separator: a holder may end in one
                when v_pool = concat(
                    split_part(v_pool, e'\x1f', 1), e'\x1f',
                    split_part(v_pool, e'\x1f', 2), e'\x1f') then 2
                else 1
            end;
            perform
            from pglimit.creation_locks l
            where l.lock_number = v_kind * 16384 + (hashtextextended(v_pool, 0) & 16383)::integer
            for update skip locked;
            continue when not found;
            -- two statements: a row that changed between the snapshot and the lock is locked in
            -- its new version, which a delete by the same snapshot would leave alone
            select count(*)
            into v_locked
            from (
                select
                from pglimit.permits p
                where p.pool = v_pool and p.expires_at < v_cutoff and p.turn < v_cutoff_turn
                for update skip locked
            ) l;
            delete from pglimit.permits p
            where p.pool = v_pool
                and v_locked = (select count(*) from pglimit.permits q where q.pool = v_pool);
            get diagnostics v_removed = row_count;
            v_permits := v_permits + v_removed;
        end loop;
        v_block := v_block + 1;
    end loop;
    v_next_permits := case when v_block < v_blocks then v_block else 0 end;

    v_deadline := clock_timestamp() + interval '100 ms';
    v_blocks := pg_relation_size('pglimit.counters') / current_setting('block_size')::bigint;
    select g.counters_block into v_block from pglimit.purge_progress g where g.singleton;
    v_block := case when v_block < v_blocks then v_block else 0 end;
    v_stop := least(v_block + 1000, v_blocks);
    while v_block < v_stop and v_counters < purge.batch and clock_timestamp() < v_deadline loop
        with locked as materialized (
            select c.ctid as tid
            from pglimit.counters c
            where c.ctid >= format('(%s,0)', v_block)::tid
                and c.ctid < format('(%s,0)', v_block + 1)::tid
                and coalesce(c.reset_at, c.special_reset_at) < v_cutoff
            for update skip locked
        )
        delete from pglimit.counters c
        using locked l
        where c.ctid = l.tid;
        get diagnostics v_removed = row_count;
        v_counters := v_counters + v_removed;
        v_block := v_block + 1;
    end loop;
    v_next_counters := case when v_block < v_blocks then v_block else 0 end;

    v_deadline := clock_timestamp() + interval '100 ms';
    v_blocks := pg_relation_size('pglimit.durable_counters')
        / current_setting('block_size')::bigint;
    select g.durable_counters_block into v_block from pglimit.purge_progress g where g.singleton;
    v_block := case when v_block < v_blocks then v_block else 0 end;
    v_stop := least(v_block + 1000, v_blocks);
    while v_block < v_stop and v_durable < purge.batch and clock_timestamp() < v_deadline loop
        with locked as materialized (
            select c.ctid as tid
            from pglimit.durable_counters c
            where c.ctid >= format('(%s,0)', v_block)::tid
                and c.ctid < format('(%s,0)', v_block + 1)::tid
                and coalesce(c.reset_at, c.special_reset_at) < v_cutoff
            for update skip locked
        )
        delete from pglimit.durable_counters c
        using locked l
        where c.ctid = l.tid;
        get diagnostics v_removed = row_count;
        v_durable := v_durable + v_removed;
        v_block := v_block + 1;
    end loop;
    v_next_durable := case when v_block < v_blocks then v_block else 0 end;

    -- blocks that are over, and whose strikes have decayed
    delete from pglimit.blocks b
    where b.ctid = any (array(
        select l.ctid
        from pglimit.blocks l
        where l.forget_at < v_cutoff
        order by l.forget_at
        limit purge.batch
        for update skip locked));
    get diagnostics v_removed = row_count;
    v_more := v_removed = purge.batch;
    delete from pglimit.block_ranges r
    where r.ctid = any (array(
        select l.ctid
        from pglimit.block_ranges l
        where l.blocked_until < v_cutoff
        order by l.blocked_until
        limit purge.batch
        for update skip locked));
    get diagnostics v_removed = row_count;
    v_more := v_more or v_removed = purge.batch;
    -- pairs that are known no more
    delete from pglimit.known_sign_ins k
    where k.ctid = any (array(
        select l.ctid
        from pglimit.known_sign_ins l
        where l.seen_at < clock_timestamp() - interval '90 days'
        order by l.seen_at
        limit purge.batch
        for update skip locked));
    get diagnostics v_removed = row_count;
    v_more := v_more or v_removed = purge.batch;
    -- replicas that are gone: few, so all are looked at
    delete from pglimit.replicas r
    where r.ctid = any (array(
        select l.ctid
        from pglimit.replicas l
        where l.ready_until < v_cutoff
        limit purge.batch
        for update skip locked));
    get diagnostics v_removed = row_count;
    v_more := v_more or v_removed = purge.batch;

    -- changes of limits that no open counter is older than: then hits go the straight way again
    for v_carried in
        select c.tenant, c.limit_name
        from pglimit.limit_carries c
        group by c.tenant, c.limit_name
        having max(c.carries_until) < clock_timestamp()
        limit purge.batch
    loop
        perform
        from pglimit.limits l
        where l.tenant = v_carried.tenant and l.limit_name = v_carried.limit_name
        for update skip locked;
        continue when not found and exists (
            select
            from pglimit.limits l
            where l.tenant = v_carried.tenant and l.limit_name = v_carried.limit_name);
        update pglimit.limits l
        set carries_until = null
        where l.tenant = v_carried.tenant
            and l.limit_name = v_carried.limit_name
            and l.carries_until < clock_timestamp();
        delete from pglimit.limit_carries c
        where c.tenant = v_carried.tenant
            and c.limit_name = v_carried.limit_name
            and c.carries_until < clock_timestamp();
    end loop;

    -- holds: those that lapsed and are to be given back, and those that are over for long. Last of
    -- the tables, for the counters that are changed stay locked to the end.
    v_deadline := clock_timestamp() + interval '100 ms';
    v_blocks := pg_relation_size('pglimit.holds') / current_setting('block_size')::bigint;
    select g.holds_block into v_block from pglimit.purge_progress g where g.singleton;
    v_block := case when v_block < v_blocks then v_block else 0 end;
    v_stop := least(v_block + 1000, v_blocks);
    while v_block < v_stop
        and v_holds < purge.batch
        and v_returned < purge.batch
        and clock_timestamp() < v_deadline
    loop
        for v_hold in
            select h.*
            from pglimit.holds h
            where h.ctid >= format('(%s,0)', v_block)::tid
                and h.ctid < format('(%s,0)', v_block + 1)::tid
                and h.expires_at <= clock_timestamp()
                and h.returns
                and h.actual is null
            for update skip locked
        loop
            continue when not pglimit._return_hold(v_hold, false);
            update pglimit.holds h
            set returns = false, returned_at = clock_timestamp()
            where h.hold_id = v_hold.hold_id;
            v_returned := v_returned + 1;
        end loop;
        with locked as materialized (
            select h.ctid as tid
            from pglimit.holds h
            where h.ctid >= format('(%s,0)', v_block)::tid
                and h.ctid < format('(%s,0)', v_block + 1)::tid
                and h.expires_at < v_cutoff
                and (h.actual is not null or not h.returns)
            for update skip locked
        )
        delete from pglimit.holds h
        using locked l
        where h.ctid = l.tid;
        get diagnostics v_removed = row_count;
        v_holds := v_holds + v_removed;
        v_block := v_block + 1;
    end loop;
    v_next_holds := case when v_block < v_blocks then v_block else 0 end;

    v_deadline := clock_timestamp() + interval '100 ms';
    v_blocks := pg_relation_size('pglimit.durable_holds') / current_setting('block_size')::bigint;
    select g.durable_holds_block into v_block from pglimit.purge_progress g where g.singleton;
    v_block := case when v_block < v_blocks then v_block else 0 end;
    v_stop := least(v_block + 1000, v_blocks);
    while v_block < v_stop
        and v_durable_holds < purge.batch
        and v_returned < purge.batch
        and clock_timestamp() < v_deadline
    loop
        for v_hold in
            select h.*
            from pglimit.durable_holds h
            where h.ctid >= format('(%s,0)', v_block)::tid
                and h.ctid < format('(%s,0)', v_block + 1)::tid
                and h.expires_at <= clock_timestamp()
                and h.returns
                and h.actual is null
            for update skip locked
        loop
            continue when not pglimit._return_hold(v_hold, true);
            update pglimit.durable_holds h
            set returns = false, returned_at = clock_timestamp()
            where h.hold_id = v_hold.hold_id;
            v_returned := v_returned + 1;
        end loop;
        with locked as materialized (
            select h.ctid as tid
            from pglimit.durable_holds h
            where h.ctid >= format('(%s,0)', v_block)::tid
                and h.ctid < format('(%s,0)', v_block + 1)::tid
                and h.expires_at < v_cutoff
                and (h.actual is not null or not h.returns)
            for update skip locked
        )
        delete from pglimit.durable_holds h
        using locked l
        where h.ctid = l.tid;
        get diagnostics v_removed = row_count;
        v_durable_holds := v_durable_holds + v_removed;
        v_block := v_block + 1;
    end loop;
    v_next_durable_holds := case when v_block < v_blocks then v_block else 0 end;

    update pglimit.purge_progress g
    set permits_block = v_next_permits,
        counters_block = v_next_counters,
        durable_counters_block = v_next_durable,
        holds_block = v_next_holds,
        durable_holds_block = v_next_durable_holds,
        last_purge_at = clock_timestamp()
    where g.singleton;
    if not v_lost then
        select f.in_use
        into v_live
        from pglimit.installation i
        cross join lateral pglimit._find_lanes(e'\x1f\x1f', i.installation_cap, 1) f
        where i.singleton and f.in_use <> i.live_known;
        if found then
            update pglimit.installation i
            set live_known = v_live
            where i.singleton = (
                select l.singleton
                from pglimit.installation l
                where l.singleton
                for update skip locked);
        end if;
    end if;
    return row(
        v_permits, v_counters + v_durable,
        v_next_permits > 0 or v_next_counters > 0 or v_next_durable > 0 or v_next_holds > 0
            or v_next_durable_holds > 0 or v_more,
        v_holds + v_durable_holds, v_returned)::pglimit.purge_row;
end
$$;

comment on function pglimit.purge(bigint) is
    'Removes idle pools, counters and holds, a bounded number a call, and gives lapsed holds back '
    'where their limit says so. One row: rows removed, and whether this pass over the tables has '
    'more to read or to remove. '
    'PGL01 invalid argument, PGL03 wrong transaction.';

revoke all on function pglimit.purge(bigint) from public;
