-- Locks out whoever would make a counter for the subject of a block, to the end of the transaction:
-- with the creation lock of the key, or for every limit with the table of all creation locks, which
-- those who make anything hold in a weaker mode. So a counter is either there and committed, and is
-- stamped, or its maker waits and then sees the block. Hits of counters that are there go on;
-- claims with a request, of several slots or at a fair endpoint need a lock in that table and wait.
-- Writes: creation_locks. Locks: one creation lock, or that table in mode exclusive, which pg_dump
-- does not mind. It waits for every transaction that has made something, for a second at most: in
-- short tries, for all that come after a try queue behind it, though what it waits for may never
-- end. In the pauses between they go on. A try is a subtransaction that writes nothing, and so has
-- no number, of which a transaction could have too many.
create or replace function pglimit._lock_block(limit_name text, subject text, tenant text)
returns void
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
begin
    if _lock_block.limit_name = '*' then
        for v_try in 1..10 loop
            begin
                perform set_config('lock_timeout', '50ms', true);
                lock table pglimit.creation_locks in exclusive mode;
                perform set_config('lock_timeout', '1s', true);
                return;
            exception
                -- which takes the short timeout back, too
                when lock_not_available then
                    perform pg_sleep(0.05);
            end;
        end loop;
        raise exception using
            errcode = '55P03',
            message = 'a transaction that has made a counter or a pool does not end',
            detail = 'Who blocks at every limit, or a network, waits a second for all that make '
                || 'what it would have to stamp.',
            hint = 'Try again; if it stays, end the session that holds it: select pid from '
                || 'pg_locks where relation = ''pglimit.creation_locks''::regclass.';
    else
        perform pglimit._lock_creation(0, format(
            e'%s\x1f%s\x1f%s', _lock_block.tenant, _lock_block.limit_name, _lock_block.subject));
    end if;
end
$$;

comment on function pglimit._lock_block(text, text, text) is
    'internal: keeps others from making a counter for the subject of a block';

revoke all on function pglimit._lock_block(text, text, text) from public;
