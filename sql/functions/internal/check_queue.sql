-- Refuses bounds that a queue cannot have. Writes nothing.
create or replace function pglimit._check_queue(
    fair boolean,
    queue_cap bigint,
    holder_queue_cap bigint
)
returns void
language plpgsql
immutable
parallel safe
called on null input
security invoker
as $$
begin
    if fair is null then
        raise exception using
            errcode = 'PGL01',
            message = 'fair is null',
            detail = 'A fair endpoint refuses claims without a ticket while tickets wait.',
            hint = 'Pass fair => true or fair => false, or leave it out.';
    end if;
    if queue_cap is null or queue_cap < 0 or queue_cap > 1000
        or holder_queue_cap is null or holder_queue_cap < 0 or holder_queue_cap > 1000
    then
        raise exception using
            errcode = 'PGL01',
            message = format('a queue of %s tickets, %s of one holder, is out of range',
                coalesce(queue_cap::text, 'null'), coalesce(holder_queue_cap::text, 'null')),
            detail = '0 to 1,000 tickets may wait at an endpoint; 0 lets nobody wait.',
            hint = 'Leave queue_cap (1000) and holder_queue_cap (100) out, or pass such numbers.';
    end if;
end
$$;

comment on function pglimit._check_queue(boolean, bigint, bigint) is
    'internal: raises PGL01 for bounds that a queue cannot have';

revoke all on function pglimit._check_queue(boolean, bigint, bigint) from public;
