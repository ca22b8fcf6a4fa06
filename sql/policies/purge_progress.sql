-- purge_progress: read and written by pglimit_system alone.
do $$ begin perform pglimit._secure_relation('pglimit.purge_progress'); end $$;
