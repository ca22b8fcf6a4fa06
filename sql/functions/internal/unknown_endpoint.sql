-- Raises the error of a claim that gives no cap for an endpoint that has no row. Writes nothing.
create or replace function pglimit._unknown_endpoint(endpoint text)
returns void
language plpgsql
immutable
parallel safe
called on null input
security invoker
as $$
begin
    raise exception using
        errcode = 'PGL02',
        message = format('unknown endpoint %s', quote_literal(endpoint)),
        detail = 'The call gives no cap, and no row of pglimit.endpoints has this name.',
        hint = format(
            'Create it: select pglimit.set_endpoint(%s, holder_cap => 2, '
            || 'time_bound => ''1 minute''); or pass a cap and a lease with the call.',
            quote_literal(endpoint));
end
$$;

comment on function pglimit._unknown_endpoint(text) is
    'internal: raises PGL02 for an endpoint that nobody has set';

revoke all on function pglimit._unknown_endpoint(text) from public;
