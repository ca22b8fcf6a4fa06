-- When a ticket should be polled next. About a twentieth of what it has waited, between 10 and 100
-- ms, so that a poll is late by little of the whole wait and those who wait long ask seldom; more
-- the more are before it, a second at most; a fifth more or less at random, so that those who came
-- together do not come back together.
create or replace function pglimit._poll_after(waited interval, ahead bigint)
returns interval
language sql
volatile
parallel safe
called on null input
security invoker
as $$
    select least(
        greatest(least(waited / 20, interval '100 ms'), interval '10 ms')
            * (1 + ahead / 8.0) * (0.8 + 0.4 * random()),
        interval '1 s')
$$;

comment on function pglimit._poll_after(interval, bigint) is
    'internal: when a ticket should be polled next';

revoke all on function pglimit._poll_after(interval, bigint) from public;
