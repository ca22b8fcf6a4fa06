-- Refuses a page size that a list cannot serve. Writes nothing.
create or replace function pglimit._check_max_rows(max_rows integer)
returns void
language plpgsql
immutable
parallel safe
called on null input
security invoker
as $$
begin
    if max_rows is null or max_rows < 1 or max_rows > 10000 then
        raise exception using
            errcode = 'PGL01',
            message = format('max_rows of %s is out of range', coalesce(max_rows::text, 'null')),
            detail = 'A page has 1 to 10,000 rows.',
            hint = 'Pass max_rows => 100, and for the next page after => the last cursor or '
                || 'permit_id seen.';
    end if;
end
$$;

comment on function pglimit._check_max_rows(integer) is
    'internal: raises PGL01 for a page size that a list cannot serve';

revoke all on function pglimit._check_max_rows(integer) from public;
