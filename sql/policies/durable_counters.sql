-- durable_counters: read and written by pglimit_system alone.
do $$ begin perform pglimit._secure_relation('pglimit.durable_counters'); end $$;
