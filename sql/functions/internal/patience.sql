-- How long a ticket lives that is polled no more: three polls and two seconds.
create or replace function pglimit._patience(poll_after interval)
returns interval
language sql
immutable
parallel safe
called on null input
security invoker
as $$
    select poll_after * 3 + interval '2 s'
$$;

comment on function pglimit._patience(interval) is
    'internal: how long a ticket lives that is polled no more';

revoke all on function pglimit._patience(interval) from public;
