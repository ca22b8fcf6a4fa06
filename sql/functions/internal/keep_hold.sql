-- Keeps a hold, under a number of its own, which it returns. Writes: holds or durable_holds; in a
-- new epoch also installation and sentinel. Locks: in a new epoch what _begin_epoch locks, after
-- the counter that was charged; nobody who has those locks waits for a counter.
create or replace function pglimit._keep_hold(hold pglimit.holds, durable boolean)
returns bigint
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
begin
    -- drawn as the numbers of permits are: greater than all before it, also after a crash
    hold.hold_id := nextval('pglimit.permit_number') + 549755813888 * coalesce(
        (select s.epoch from pglimit.sentinel s where s.singleton),
        pglimit._begin_epoch(null));
    if durable then
        insert into pglimit.durable_holds select hold.*;
    else
        insert into pglimit.holds select hold.*;
    end if;
    return hold.hold_id;
end
$$;

comment on function pglimit._keep_hold(pglimit.holds, boolean) is
    'internal: keeps a hold and returns its number';

revoke all on function pglimit._keep_hold(pglimit.holds, boolean) from public;
