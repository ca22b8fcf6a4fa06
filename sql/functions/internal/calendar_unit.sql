-- The unit of the calendar that an interval is exactly one of: hour, day, week, month or year;
-- raises PGL01 for others. By its parts, for '1 month' = '30 days' to the operator. Writes nothing.
create or replace function pglimit._calendar_unit(per interval)
returns text
language plpgsql
immutable
parallel safe
called on null input
security invoker
as $$
declare
    v_months integer := extract(year from per) * 12 + extract(month from per);
    v_days integer := extract(day from per);
    v_seconds numeric := extract(
        epoch from per - make_interval(months => v_months, days => v_days));
    v_unit text := case
        when v_months = 0 and v_days = 0 and v_seconds = 3600 then 'hour'
        when v_months = 0 and v_days = 0 and v_seconds = 86400 then 'day'
        when v_months = 0 and v_days = 1 and v_seconds = 0 then 'day'
        when v_months = 0 and v_days = 7 and v_seconds = 0 then 'week'
        when v_months = 1 and v_days = 0 and v_seconds = 0 then 'month'
        when v_months = 12 and v_days = 0 and v_seconds = 0 then 'year'
    end;
begin
    if v_unit is null then
        raise exception using
            errcode = 'PGL01',
            message = format('per of %s is no unit of the calendar', coalesce(per::text, 'null')),
            detail = 'A calendar window is an hour, a day, a week (from Monday), a month or a '
                || 'year of the limit''s time zone.',
            hint = 'Pass per => ''1 month'', or choose algorithm => ''fixed_window''.';
    end if;
    return v_unit;
end
$$;

comment on function pglimit._calendar_unit(interval) is
    'internal: the unit of the calendar that an interval is one of, or PGL01';

revoke all on function pglimit._calendar_unit(interval) from public;
