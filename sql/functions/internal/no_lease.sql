-- Raises the error of a claim whose lease nobody gives. Writes nothing.
create or replace function pglimit._no_lease(endpoint text)
returns void
language plpgsql
immutable
parallel safe
called on null input
security invoker
as $$
begin
    raise exception using
        errcode = 'PGL01',
        message = format('endpoint %s has no lease', quote_literal(endpoint)),
        detail = 'Neither the call nor a row of pglimit.endpoints says how long the permit may '
            || 'live, and there is no silent default.',
        hint = 'Pass lease => ''30 s'', or set the time_bound of the endpoint.';
end
$$;

comment on function pglimit._no_lease(text) is
    'internal: raises PGL01 for a claim without a lease';

revoke all on function pglimit._no_lease(text) from public;
