-- The current row of each lane of a pool from 1 on, in no order: the newest, one descent a lane,
-- which meets no dead turn. Writes and locks nothing.
create or replace function pglimit._current_rows(pool text)
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
    where p.pool = _current_rows.pool
    order by p.lane desc, p.turn desc
    limit 1;
    return query
    select x.*
    from generate_series(1, v_top) g (lane)
    cross join lateral (
        select p.*
        from pglimit.permits p
        where p.pool = _current_rows.pool and p.lane = g.lane
        order by p.turn desc
        limit 1
    ) x;
end
$$;

comment on function pglimit._current_rows(text) is
    'internal: the current row of each lane of a pool';

revoke all on function pglimit._current_rows(text) from public;
