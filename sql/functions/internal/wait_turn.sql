-- Says whether it is the turn of a ticket, or of a claim without one, at an endpoint with a queue.
-- Tickets are served by their tag. One whose holder has no room in his own pool is passed over, for
-- the room of others is of no use to him, and so are all of his behind it. A ticket may go when
-- there is room for all before it and for itself; a claim without a ticket when nobody waits who
-- could go, and no ticket of its holder does. `room` is what the pools shared with others have
-- free, null for no bound; `holder_room` likewise in the holder's pool. `need` is what those before
-- it will take. Writes and locks nothing: an answer to rely on is asked for under the queue's
-- creation lock, which all have who wait or let others go.
create or replace function pglimit._wait_turn(
    tenant text,
    endpoint text,
    holder text,
    ticket bigint,
    weight bigint,
    room bigint,
    holder_room bigint,
    out turn boolean,
    out ahead integer,
    out need bigint
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
    v_queue text := _wait_turn.tenant || e'\x1f\x1fq' || _wait_turn.endpoint;
    v_shared text := concat(_wait_turn.tenant, e'\x1f', _wait_turn.endpoint, e'\x1f');
    v_until timestamptz;
    v_holder_cap bigint;
    v_overridden boolean;
    v_holders text[] := array[v_shared || _wait_turn.holder];
    v_rooms bigint[] := array[_wait_turn.holder_room];
    v_at integer;
    v_cap bigint;
    v_decided boolean := _wait_turn.room is null and _wait_turn.ticket is not null;
    v_other record;
begin
    turn := true;
    ahead := 0;
    need := 0;
    select p.ends_at into v_until
    from pglimit.permits p
    where p.pool = v_queue and p.lane = 0
    order by p.turn desc
    limit 1;
    if (v_until > clock_timestamp()) is not true then
        return;
    end if;

    select e.holder_cap, e.overridden
    into v_holder_cap, v_overridden
    from pglimit.endpoints e
    where e.tenant in (_wait_turn.tenant, '') and e.endpoint = _wait_turn.endpoint
    order by e.tenant desc
    limit 1;
    for v_other in
        select s.permit_id, s.for_pool, s.weight, s.asked_caps[1] as holder_cap
        from pglimit._current_rows(v_queue) s
        where s.expires_at > clock_timestamp()
        order by s.queue_tag, s.permit_id
    loop
        exit when v_other.permit_id = _wait_turn.ticket;
        ahead := ahead + 1;
        v_at := array_position(v_holders, v_other.for_pool);
        if v_decided and v_at is distinct from 1 then
            -- whether this one could go changes nothing any more, and costs a look at its pool
            need := need + v_other.weight;
            continue;
        end if;
        if v_at is null then
            v_cap := coalesce(v_other.holder_cap, v_holder_cap);
            if v_overridden then
                select coalesce(r.holder_cap, v_cap)
                into v_cap
                from pglimit._claim_rule(
                    _wait_turn.tenant,
                    _wait_turn.endpoint,
                    substr(v_other.for_pool, length(v_shared) + 1)) r;
            end if;
            v_holders := v_holders || v_other.for_pool;
            v_at := cardinality(v_holders);
            v_rooms[v_at] := null;
            if v_cap is not null then
                v_rooms[v_at] := v_cap - (
                    select f.in_use from pglimit._find_lanes(v_other.for_pool, v_cap, 1) f);
            end if;
        end if;
        if _wait_turn.ticket is null and v_at = 1 then
            turn := false;
        end if;
        if v_other.weight > v_rooms[v_at] then
            -- those of his behind it would else take what it waits for
            v_rooms[v_at] := 0;
            continue;
        end if;
        v_rooms[v_at] := v_rooms[v_at] - v_other.weight;
        need := need + v_other.weight;
        if _wait_turn.ticket is null then
            turn := false;
            v_decided := true;
        else
            v_decided := coalesce(need + _wait_turn.weight > _wait_turn.room, true);
        end if;
    end loop;
    if _wait_turn.ticket is not null then
        turn := coalesce(need + _wait_turn.weight <= _wait_turn.room, true)
            and coalesce(_wait_turn.weight <= v_rooms[1], true);
    end if;
end
$$;

comment on function pglimit._wait_turn(text, text, text, bigint, bigint, bigint, bigint) is
    'internal: whether it is the turn of a ticket or of a claim without one';

revoke all on function pglimit._wait_turn(text, text, text, bigint, bigint, bigint, bigint)
from public;
