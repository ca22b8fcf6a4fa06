-- An interval as a fixed number of seconds (1 day is 24 h), whatever the session's time zone;
-- refuses what has no fixed length, is not positive or is longer than 36,525 days (a hundred
-- years). make_interval rounds to microseconds; float8 seconds are exact to less than one over
-- this range.
create or replace function pglimit._fixed_interval(argument text, value interval)
returns interval
language plpgsql
immutable
parallel safe
called on null input
security invoker
as $$
declare
    v_fixed interval;
begin
    if substr(interval_send(value), 13) <> e'\\x00000000' then
        raise exception using
            errcode = 'PGL01',
            message = format('%s of %s has no fixed length', argument, value),
            detail = 'Months and years differ in length; intervals here count as fixed seconds.',
            hint = format('Say it in days or less: %s => ''30 days''', argument)
                || case when argument = 'per' then
                    '; or count by the month or year: algorithm => ''calendar''.' else '.' end;
    end if;
    if value is null or value <= '0 s' or value > '36525 days' then
        raise exception using
            errcode = 'PGL01',
            message = format('%s of %s is out of range', argument, coalesce(value::text, 'null')),
            detail = format('%s must be longer than nothing and at most 36525 days.', argument),
            hint = format('Pass an interval: %s => ''1 minute''.', argument);
    end if;
    v_fixed := make_interval(secs => date_part('epoch', value));
    return v_fixed;
end
$$;

comment on function pglimit._fixed_interval(text, interval) is
    'internal: an interval as fixed seconds; raises PGL01 for one that is not positive and fixed';

revoke all on function pglimit._fixed_interval(text, interval) from public;
