-- Raises the error of a change that met, time after time, a row that others made and dropped again.
create or replace function pglimit._lost_races(name text)
returns void
language plpgsql
immutable
parallel safe
called on null input
security invoker
as $$
begin
    raise exception using
        errcode = '55P03',
        message = format('%s is made and dropped again and again', quote_literal(name)),
        detail = 'A hundred times there was no row to change and no room to make one.',
        hint = 'Try again, and find who sets and drops this name in a loop: '
            || 'select * from pglimit.list_changes();';
end
$$;

comment on function pglimit._lost_races(text) is
    'internal: raises 55P03 for a change that always came second';

revoke all on function pglimit._lost_races(text) from public;
