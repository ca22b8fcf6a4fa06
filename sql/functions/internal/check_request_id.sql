-- Returns a request_id that claims may carry; raises PGL01 for others. It holds no separator, so it
-- can be told from the holder before it. Writes nothing.
create or replace function pglimit._check_request_id(request_id text)
returns text
language plpgsql
immutable
parallel safe
called on null input
security invoker
as $$
begin
    if request_id ~ '^[!-~]{1,200}$' then
        return request_id;
    end if;
    raise exception using
        errcode = 'PGL01',
        message = format('request_id %s is not 1 to 200 printable ASCII characters',
            quote_literal(left(request_id, 100))),
        detail = 'It tells one attempt of a request from another request of the same holder.',
        hint = 'Pass an identifier made anew for each request, such as gen_random_uuid()::text.';
end
$$;

comment on function pglimit._check_request_id(text) is
    'internal: a request_id that claims may carry, or PGL01';

revoke all on function pglimit._check_request_id(text) from public;
