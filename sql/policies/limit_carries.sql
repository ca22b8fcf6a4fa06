-- limit_carries: read and written by pglimit_system alone.
do $$ begin perform pglimit._secure_relation('pglimit.limit_carries'); end $$;
