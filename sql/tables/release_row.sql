-- Result of release_permit.
create type pglimit.release_row as (
    released boolean,
    reason text
);

comment on type pglimit.release_row is
    'result of release_permit';
