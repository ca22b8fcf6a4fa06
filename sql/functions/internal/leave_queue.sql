-- Gives up the place of a ticket that was granted, and notes how far the queue has been served. The
-- caller holds the queue's creation lock and the ticket's row. Writes: permits. Locks: the queue's
-- state.
create or replace function pglimit._leave_queue(tenant text, endpoint text, ticket bigint)
returns void
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_queue text := _leave_queue.tenant || e'\x1f\x1fq' || _leave_queue.endpoint;
    v_tag double precision;
    v_last timestamptz;
begin
    if _leave_queue.ticket is null then
        return;
    end if;
    update pglimit.permits p
    set expires_at = '-infinity'
    where p.permit_id = _leave_queue.ticket
    returning p.queue_tag into v_tag;
    select max(s.ends_at) into v_last
    from pglimit._current_rows(v_queue) s
    where s.expires_at > clock_timestamp();
    update pglimit.permits p
    set turn = greatest(p.turn + 1, (date_part('epoch', clock_timestamp()) * 1000000)::bigint),
        queue_tag = greatest(p.queue_tag, v_tag),
        ends_at = coalesce(v_last, '-infinity')
    where p.ctid = (
        select l.ctid
        from pglimit.permits l
        where l.pool = v_queue and l.lane = 0
        order by l.turn desc
        limit 1);
end
$$;

comment on function pglimit._leave_queue(text, text, bigint) is
    'internal: gives up the place of a ticket that was granted';

revoke all on function pglimit._leave_queue(text, text, bigint) from public;
