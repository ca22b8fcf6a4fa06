-- Result of purge.
create type pglimit.purge_row as (
    permits_purged bigint,
    counters_purged bigint,
    more boolean,
    holds_purged bigint,
    holds_returned bigint
);

comment on type pglimit.purge_row is
    'result of purge';
