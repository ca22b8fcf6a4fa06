-- creation_locks: read and written by pglimit_system alone.
do $$ begin perform pglimit._secure_relation('pglimit.creation_locks'); end $$;
