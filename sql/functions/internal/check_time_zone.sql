-- Refuses a time zone that there is not, and one where no window begins by it. Reads the names that
-- the server has; writes nothing.
create or replace function pglimit._check_time_zone(time_zone text, algorithm text)
returns void
language plpgsql
stable
parallel safe
called on null input
security invoker
as $$
begin
    if time_zone is not null
        and (
            algorithm <> 'calendar'
            or not exists (
                select from pg_timezone_names z where z.name = _check_time_zone.time_zone)
        )
    then
        raise exception using
            errcode = 'PGL01',
            message = case
                when algorithm <> 'calendar' then format('time_zone with algorithm %s', algorithm)
                else format('time zone %s is unknown', quote_literal(left(time_zone, 100)))
            end,
            detail = 'It says when a calendar window begins, by the name of a place.',
            hint = 'Pass one of: select name from pg_timezone_names; such as ''Europe/Berlin''.';
    end if;
end
$$;

comment on function pglimit._check_time_zone(text, text) is
    'internal: raises PGL01 for a time zone that cannot be that of a limit';

revoke all on function pglimit._check_time_zone(text, text) from public;
