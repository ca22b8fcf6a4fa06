-- Result of settle.
create type pglimit.settle_row as (
    settled boolean,
    reason text,
    remaining bigint,
    debt bigint
);

comment on type pglimit.settle_row is
    'result of settle';
