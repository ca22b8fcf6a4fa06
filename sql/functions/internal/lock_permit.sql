-- Locks all rows of a live permit, or says why not: 'live', 'lapsed', 'unknown' or 'not holder'.
-- Locks: the permit's head row, for which it waits while it holds nothing; then the others, for
-- which it does not wait. Whoever changes a permit holds its head first, so the others can be
-- locked only by a claim or a purge: one that found them lapsed, or one that lost a race for a
-- lane and keeps the lock to its end. The first shows when the lease is over; the second is waited
-- for, at most a second. Nobody waits for a row while it holds one, so there is no deadlock.
-- Writes nothing.
create or replace function pglimit._lock_permit(
    permit_id bigint,
    holder text,
    out state text,
    out expires_at timestamptz,
    out lease interval,
    out ends_at timestamptz
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
    v_row_count integer;
    v_for text;
    v_locked integer;
    v_deadline timestamptz := clock_timestamp() + interval '1 s';
begin
    -- what has lapsed is answered without a lock: a claim may want its lanes
    select p.expires_at
    into expires_at
    from pglimit.permits p
    where p.permit_id = _lock_permit.permit_id and p.claimed_at is not null;
    if expires_at <= clock_timestamp() and expires_at > '-infinity' then
        state := 'lapsed';
        return;
    end if;
    if expires_at > '-infinity' then
        select p.expires_at, p.lease, p.ends_at, p.row_count, coalesce(p.for_pool, p.pool)
        into expires_at, lease, ends_at, v_row_count, v_for
        from pglimit.permits p
        where p.permit_id = _lock_permit.permit_id and p.claimed_at is not null
        for update;
    end if;
    if expires_at is null then
        -- a permit whose head lane has a new holder had lapsed
        state := case
            when exists (
                select
                from pglimit.permits p
                where p.permit_id = _lock_permit.permit_id and p.expires_at > '-infinity')
                then 'lapsed'
            else 'unknown'
        end;
        return;
    end if;
    if expires_at = '-infinity' then
        state := 'unknown';
        return;
    end if;
    -- the holder is what follows the second separator
    if _lock_permit.holder <> substr(
        v_for,
        length(split_part(v_for, e'\x1f', 1)) + length(split_part(v_for, e'\x1f', 2)) + 3)
    then
        state := 'not holder';
        return;
    end if;
    loop
        if expires_at <= clock_timestamp() then
            state := 'lapsed';
            return;
        end if;
        select count(*)
        into v_locked
        from (
            select
            from pglimit.permits p
            where p.permit_id = _lock_permit.permit_id
                and p.row_count > 0 -- not marked as lapsed since the head was locked
            for update skip locked
        ) l;
        if v_locked = v_row_count then
            state := 'live';
            return;
        end if;
        if clock_timestamp() > v_deadline then
            raise exception using
                errcode = '55P03',
                message = format('permit %s is locked by a claim that does not end', permit_id),
                detail = 'A transaction that claimed a permit keeps a lock on one of its slots.',
                hint = 'Look for sessions idle in transaction: select pid, query from '
                    || 'pg_stat_activity where state like ''idle in transaction%''.';
        end if;
        perform pg_sleep(0.0005);
    end loop;
end
$$;

comment on function pglimit._lock_permit(bigint, text) is
    'internal: locks all rows of a live permit, or says what else it is';

revoke all on function pglimit._lock_permit(bigint, text) from public;
