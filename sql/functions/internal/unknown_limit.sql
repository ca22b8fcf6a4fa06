-- Raises the error of a call that gives no limit and finds none, with the calls that would mend it.
create or replace function pglimit._unknown_limit(limit_name text, max_hits bigint)
returns void
language plpgsql
immutable
parallel safe
called on null input
security invoker
as $$
begin
    if max_hits is not null then
        raise exception using
            errcode = 'PGL01',
            message = format('limit %s has max_hits but no per', quote_literal(limit_name)),
            detail = 'A limit is a number of hits per interval; no row of pglimit.limits gives it.',
            hint = format('Pass both: max_hits => %s, per => ''1 minute''.', max_hits);
    end if;
    raise exception using
        errcode = 'PGL02',
        message = format('unknown limit %s', quote_literal(limit_name)),
        detail = 'The call gives no max_hits, and no row of pglimit.limits has this name.',
        hint = format(
            'Create it: select pglimit.set_limit(%s, max_hits => 10, per => ''1 minute''); '
            || 'or pass max_hits and per with the call.',
            quote_literal(limit_name));
end
$$;

comment on function pglimit._unknown_limit(text, bigint) is
    'internal: raises PGL02 for a limit neither given nor stored (PGL01 for one without per)';

revoke all on function pglimit._unknown_limit(text, bigint) from public;
