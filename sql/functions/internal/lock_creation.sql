-- Lets one transaction at a time make what a key or a pool needs; who waited looks again. `kind` is
-- 0 for a counter's key; 1, 2 and 3 for the pool of a holder, an endpoint and the installation; 4
-- for a request, or a permit that is reasserted; 5 for what operators do one at a time; 6 for a
-- queue, held by whoever is served in it; 7 for the pools of queues and of permits beyond the caps.
-- Each has 16,384 locks of its own: so those who lock in the order 5, 0, 4, 6, 1, 2, 3, 7, several
-- of a kind by number, wait in no circle, although two keys may share a lock. Of kind 3 there is
-- one pool alone; whoever begins an epoch holds its lock. Writes: creation_locks (a row not met
-- before). Locks: that row, to the end of the transaction.
create or replace function pglimit._lock_creation(kind integer, key text)
returns void
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_number integer := kind * 16384 + (hashtextextended(key, 0) & 16383)::integer;
begin
    for v_attempt in 1..10 loop
        perform
        from pglimit.creation_locks l
        where l.lock_number = v_number
        for update;
        if found then
            return;
        end if;
        insert into pglimit.creation_locks as l (lock_number)
        values (v_number)
        on conflict on constraint creation_locks_pkey do nothing;
    end loop;
    raise exception using
        errcode = '55P03',
        message = 'the row of a creation lock vanished ten times',
        detail = 'Nothing in pglimit deletes rows of pglimit.creation_locks.',
        hint = 'Find out who deletes them.';
end
$$;

comment on function pglimit._lock_creation(integer, text) is
    'internal: one transaction at a time makes a key or the lanes of a pool';

revoke all on function pglimit._lock_creation(integer, text) from public;
