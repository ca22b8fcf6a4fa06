-- The tickets that wait in a queue, in no order: the newest row of each lane, as far as it lives.
-- Writes and locks nothing.
create or replace function pglimit._seats(queue text)
returns setof pglimit.permits
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
rows 30
as $$
#variable_conflict use_column
declare
    v_top integer;
begin
    select p.lane into v_top
    from pglimit.permits p
    where p.pool = _seats.queue
    order by p.lane desc, p.turn desc
    limit 1;
    return query
    select x.*
    from generate_series(1, v_top) g (lane)
    cross join lateral (
        select p.*
        from pglimit.permits p
        where p.pool = _seats.queue and p.lane = g.lane
        order by p.turn desc
        limit 1
    ) x
    where x.expires_at > clock_timestamp();
end
$$;

comment on function pglimit._seats(text) is
    'internal: the tickets that wait in a queue';

revoke all on function pglimit._seats(text) from public;
