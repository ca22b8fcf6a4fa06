-- The span in which an override holds: from now on, without an end unless it says so. Refuses
-- one that is empty or over. Writes nothing.
create or replace function pglimit._check_validity(
    inout valid_from timestamptz,
    inout valid_until timestamptz
)
returns record
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
begin
    valid_from := coalesce(valid_from, clock_timestamp());
    valid_until := coalesce(valid_until, 'infinity');
    if valid_from = 'infinity'
        or valid_until <= valid_from
        or valid_until <= clock_timestamp()
    then
        raise exception using
            errcode = 'PGL01',
            message = format('an override from %s until %s would never hold',
                valid_from, valid_until),
            detail = 'It holds from valid_from on and ends before valid_until.',
            hint = 'Leave both out for one that holds from now on, or pass a later valid_until, '
                || 'such as valid_until => now() + interval ''1 day''.';
    end if;
end
$$;

comment on function pglimit._check_validity(timestamptz, timestamptz) is
    'internal: the span in which an override holds; raises PGL01 for one that is over';

revoke all on function pglimit._check_validity(timestamptz, timestamptz) from public;
