-- block_ranges: read and written by pglimit_system alone.
do $$ begin perform pglimit._secure_relation('pglimit.block_ranges'); end $$;
