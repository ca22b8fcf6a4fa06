-- The lanes of the installation's pool that are kept after a loss for permits that were live before
-- it, see _begin_epoch: rows of permit_id 0 that have not lapsed. Writes and locks nothing.
create or replace function pglimit._find_reserve(
    out tids tid[],
    out turns bigint[]
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
    v_top integer;
begin
    select p.lane
    into v_top
    from pglimit.permits p
    where p.pool = e'\x1f\x1f'
    order by p.lane desc, p.turn desc
    limit 1;
    select
        coalesce(array_agg(x.ctid), array[]::tid[]),
        coalesce(array_agg(x.turn), array[]::bigint[])
    into tids, turns
    from generate_series(1, v_top) g (lane)
    cross join lateral (
        select p.ctid, p.turn, p.permit_id, p.expires_at
        from pglimit.permits p
        where p.pool = e'\x1f\x1f' and p.lane = g.lane
        order by p.turn desc
        limit 1
    ) x
    where x.permit_id = 0 and x.expires_at > clock_timestamp();
end
$$;

comment on function pglimit._find_reserve() is
    'internal: lanes kept for permits that were live before a crash';

revoke all on function pglimit._find_reserve() from public;
