-- Rows that stand for groups of keys and pools, to be locked while one of them is made. Rows and
-- not advisory locks: pg_locks shows the numbers of those to every login, and any login may then
-- hold them. Unlogged, for a lock is worth nothing after a crash; rows are made when needed.
create unlogged table pglimit.creation_locks (
    lock_number integer not null,
    constraint creation_locks_pkey primary key (lock_number)
) with (
    fillfactor = 100
);

comment on table pglimit.creation_locks is
    'rows to lock while a key or the lanes of a pool are made; emptied by a crash of the server';
