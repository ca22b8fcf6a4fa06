-- What counters.counted_by is for a limit that calls bring: a number below zero made of all of it.
-- Two limits share one with a probability of 2^-63, and it matters only where calls bring both for
-- one subject. `burst` is null for a sliding_window. Writes and locks nothing.
create or replace function pglimit._counted_by(max_hits bigint, us bigint, burst bigint)
returns bigint
language sql
immutable
parallel safe
called on null input
security invoker
as $$
    select -1 - (
        hashint8extended(max_hits, hashint8extended(us, coalesce(burst, 0)))
        & 9223372036854775807)
$$;

comment on function pglimit._counted_by(bigint, bigint, bigint) is
    'internal: by which numbers of a call a counter counts';

revoke all on function pglimit._counted_by(bigint, bigint, bigint) from public;
