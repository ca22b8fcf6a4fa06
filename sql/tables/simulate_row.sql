-- A row of simulate.
create type pglimit.simulate_row as (
    event bigint,
    allowed boolean,
    reason text,
    quota bigint,
    remaining bigint,
    retry_after interval
);

comment on type pglimit.simulate_row is
    'a row of simulate: what one event would have been answered';
