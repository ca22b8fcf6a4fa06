-- The request that the claim of a ticket is: a repeated poll finds by it the permit that an earlier
-- one was granted. No claim with a request_id has one of this form. Raises PGL01 for arguments that
-- cannot be. Writes nothing.
create or replace function pglimit._check_ticket(ticket bigint, request_id text)
returns text
language plpgsql
immutable
parallel safe
called on null input
security invoker
as $$
begin
    if request_id is not null then
        raise exception using
            errcode = 'PGL01',
            message = 'ticket together with request_id',
            detail = 'The claim of a ticket is one request, however often it is sent.',
            hint = 'Leave request_id out.';
    end if;
    return e'\x1fticket\x1f' || ticket;
end
$$;

comment on function pglimit._check_ticket(bigint, text) is
    'internal: the request that the claim of a ticket is';

revoke all on function pglimit._check_ticket(bigint, text) from public;
