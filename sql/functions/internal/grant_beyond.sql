-- Grants a permit that takes no place in any pool, as modes shadow and off do; so that it can be
-- renewed, released and listed it has a lane of the endpoint's pool of such permits, which has no
-- cap. `counted` is true for what mode enforce would have refused: the lane counts it. A request
-- that has a live permit gets that one; a claim by a ticket that is over gets none. `reasserted` is
-- the permit_id of a permit that a crash lost, which it gets again. Writes: permits; in a new epoch
-- installation and sentinel. Locks: of a request its creation lock, which a caller who holds any
-- lock holds already; the ticket, which nobody has who waits for what a caller with a ticket holds;
-- a lane, without waiting; where lanes are made the pool's creation lock, the last kind of all.
create or replace function pglimit._grant_beyond(
    tenant text,
    endpoint text,
    holder text,
    lease interval,
    time_bound interval,
    longest interval,
    weight bigint,
    request_id text,
    request text,
    note jsonb,
    counted boolean,
    reasserted bigint default null,
    ticket bigint default null,
    out permit_id bigint,
    out expires_at timestamptz
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
    v_pool text := _grant_beyond.tenant || e'\x1f\x1fb' || _grant_beyond.endpoint;
    v_for text := concat_ws(
        e'\x1f', _grant_beyond.tenant, _grant_beyond.endpoint, _grant_beyond.holder);
    v_top integer;
    v_lane integer;
    v_taken tid;
    v_now timestamptz;
begin
    -- in mode off nothing has been looked at yet
    _grant_beyond.lease := coalesce(
        _grant_beyond.lease, _grant_beyond.time_bound + interval '30 s');
    if _grant_beyond.lease is null then
        perform pglimit._no_lease(_grant_beyond.endpoint);
    end if;
    _grant_beyond.lease := pglimit._fixed_interval('lease', _grant_beyond.lease);
    if _grant_beyond.request_id is not null then
        _grant_beyond.request := v_for || e'\x1f'
            || pglimit._check_request_id(_grant_beyond.request_id);
    end if;
    if _grant_beyond.request is not null then
        perform pglimit._lock_creation(4, _grant_beyond.request);
        select p.permit_id, p.expires_at
        into permit_id, expires_at
        from pglimit.permits p
        where p.request = _grant_beyond.request
        order by p.permit_id desc
        limit 1;
        if expires_at > clock_timestamp() then
            return;
        end if;
        expires_at := null;
        permit_id := null;
    end if;
    if _grant_beyond.ticket is not null then
        -- to the end, so that nobody is told that he gave it up
        perform
        from pglimit.permits p
        where p.permit_id = _grant_beyond.ticket
            and p.queue_tag is not null
            and p.for_pool = v_for
            and p.expires_at > clock_timestamp()
        for update;
        if not found then
            return;
        end if;
    end if;

    -- about half of the lanes are free: a few tries, and reading them all is the exception
    select p.lane into v_top
    from pglimit.permits p
    where p.pool = v_pool
    order by p.lane desc, p.turn desc
    limit 1;
    for v_try in 1..6 loop
        exit when v_top is null or v_taken is not null;
        v_lane := 1 + floor(random() * v_top);
        select l.ctid
        into v_taken
        from pglimit.permits l
        where l.ctid = (
                select p.ctid
                from pglimit.permits p
                where p.pool = v_pool and p.lane = v_lane
                order by p.turn desc
                limit 1)
            and l.pool || '' = v_pool
            and l.lane + 0 = v_lane
            and l.expires_at <= clock_timestamp()
        for update skip locked;
    end loop;
    if v_taken is null then
        select f.taken[1] into v_taken from pglimit._take_lanes(7, v_pool, 2147483647, 1) f;
    end if;

    v_now := clock_timestamp();
    expires_at := v_now + least(_grant_beyond.lease, _grant_beyond.longest);
    update pglimit.permits p
    set turn = greatest(p.turn + 1, (date_part('epoch', v_now) * 1000000)::bigint),
        permit_id = coalesce(_grant_beyond.reasserted, (
            select nextval('pglimit.permit_number') + 549755813888 * coalesce(
                (select s.epoch from pglimit.sentinel s where s.singleton),
                pglimit._begin_epoch(null)))),
        expires_at = _grant_beyond.expires_at,
        row_count = 1,
        changes = case when p.changes < 8 then p.changes + 1 else 0 end,
        swept_turn = case when p.changes < 8 then p.swept_turn else p.turn end,
        claimed_at = v_now,
        lease = _grant_beyond.lease,
        ends_at = v_now + _grant_beyond.longest,
        weight = _grant_beyond.weight,
        for_pool = v_for,
        request = _grant_beyond.request,
        note = _grant_beyond.note,
        shadow_refused = coalesce(p.shadow_refused, 0)
            + case when _grant_beyond.counted then 1 else 0 end,
        reasserted_at = case when _grant_beyond.reasserted is not null then v_now end
    where p.ctid = v_taken
    returning p.permit_id into permit_id;
end
$$;

comment on function pglimit._grant_beyond(
    text, text, text, interval, interval, interval, bigint, text, text, jsonb, boolean, bigint,
    bigint) is
    'internal: grants a permit that takes no place in any pool';

revoke all on function pglimit._grant_beyond(
    text, text, text, interval, interval, interval, bigint, text, text, jsonb, boolean, bigint,
    bigint)
from public;
