-- What a claim is refused with whose turn it is not; the reason is null when it is. 'queue': others
-- wait for the room there is; 'lapsed' and 'no ticket': there is no such ticket of this holder any
-- more. cap, in_use and retry_after are of the pool that those who wait share, after whose leases
-- there is room for them and for this claim. Writes nothing. Locks: the ticket's row, before any
-- lane; it waits for nobody but a renewal or a release of the ticket. So whoever gives a ticket up
-- comes before its grant, or after it and learns that it is gone: then there may be a permit.
create or replace function pglimit._refuse_turn(
    tenant text,
    endpoint text,
    holder text,
    ticket bigint,
    weight bigint,
    caps bigint[],
    room bigint,
    holder_room bigint,
    out reason text,
    out cap bigint,
    out in_use bigint,
    out retry_after interval
)
returns record
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_shared text := concat(_refuse_turn.tenant, e'\x1f', _refuse_turn.endpoint, e'\x1f');
    v_expires timestamptz;
    v_turn boolean;
    v_need bigint;
    v_free_at timestamptz;
    v_kind integer;
begin
    if _refuse_turn.ticket is not null then
        select p.expires_at into v_expires
        from pglimit.permits p
        where p.permit_id = _refuse_turn.ticket
            and p.pool = _refuse_turn.tenant || e'\x1f\x1fq' || _refuse_turn.endpoint
            and p.for_pool = v_shared || _refuse_turn.holder
        for update;
        if (v_expires > clock_timestamp()) is not true then
            reason := case when v_expires > '-infinity' then 'lapsed' else 'no ticket' end;
            return;
        end if;
    end if;
    select w.turn, w.need
    into v_turn, v_need
    from pglimit._wait_turn(
        _refuse_turn.tenant, _refuse_turn.endpoint, _refuse_turn.holder, _refuse_turn.ticket,
        _refuse_turn.weight, _refuse_turn.room, _refuse_turn.holder_room) w;
    if v_turn then
        return;
    end if;
    reason := 'queue';
    v_kind := case
        when caps[2] is not null then 2
        when caps[3] is not null then 3
        else 1
    end;
    cap := caps[v_kind];
    select f.in_use, f.free_at
    into in_use, v_free_at
    from pglimit._find_lanes(
        (array[v_shared || _refuse_turn.holder, v_shared, e'\x1f\x1f'])[v_kind],
        cap,
        least(_refuse_turn.weight + v_need, cap)) f;
    -- at once, were it not for those before, who come back within a second
    retry_after := greatest(v_free_at - clock_timestamp(), interval '1 s');
end
$$;

comment on function pglimit._refuse_turn(
    text, text, text, bigint, bigint, bigint[], bigint, bigint) is
    'internal: what a claim is refused with whose turn it is not';

revoke all on function pglimit._refuse_turn(
    text, text, text, bigint, bigint, bigint[], bigint, bigint) from public;
