-- What people write today in place of pglimit, to measure against: schema bench.
create schema bench;

-- A counter as one row per key, counted up in place. The statement that does so is among the scripts.
create unlogged table bench.counters (
    limit_name text not null,
    subject text not null,
    window_start timestamptz not null,
    used bigint not null,
    primary key (limit_name, subject)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

-- Permits as numbered slots: whoever inserts the row of a slot, or takes over a lapsed one, has it.
create unlogged table bench.slots (
    pool text not null,
    slot integer not null,
    permit_id bigint not null,
    expires_at timestamptz not null,
    primary key (pool, slot)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

create unlogged sequence bench.permit_ids cache 32;

-- Claims the first free slot in one statement. Two claims that saw the same slot free meet at its key;
-- the loser looks again, twice. Null when there was none.
create function bench.claim(wanted text, cap integer, lease interval)
returns bigint
language plpgsql
as $$
declare
    v_now timestamptz;
    v_permit_id bigint;
begin
    for v_attempt in 1..3 loop
        v_now := clock_timestamp();
        with free as (
            select n as slot
            from generate_series(1, cap) n
            where not exists (
                select
                from bench.slots s
                where s.pool = wanted and s.slot = n and s.expires_at > v_now
            )
            order by n
            limit 1
        )
        insert into bench.slots as s (pool, slot, permit_id, expires_at)
        select wanted, f.slot, nextval('bench.permit_ids'), v_now + lease
        from free f
        on conflict (pool, slot) do update
            set permit_id = excluded.permit_id, expires_at = excluded.expires_at
            where s.expires_at <= v_now
        returning s.permit_id into v_permit_id;
        exit when found;
    end loop;
    return v_permit_id;
end
$$;

create function bench.release(wanted text, permit bigint)
returns boolean
language plpgsql
as $$
begin
    delete from bench.slots s where s.pool = wanted and s.permit_id = permit;
    return found;
end
$$;

-- Counts the claims that pglimit refused.
create unlogged sequence bench.refused;
