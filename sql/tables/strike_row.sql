-- Result of strike.
create type pglimit.strike_row as (
    strikes bigint,
    blocked_until timestamptz,
    retry_after interval
);

comment on type pglimit.strike_row is
    'result of strike';
