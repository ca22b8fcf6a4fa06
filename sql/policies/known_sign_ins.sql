-- known_sign_ins: read and written by pglimit_system alone.
do $$ begin perform pglimit._secure_relation('pglimit.known_sign_ins'); end $$;
