-- Result of renew_permit.
create type pglimit.renew_row as (
    renewed boolean,
    reason text,
    expires_at timestamptz
);

comment on type pglimit.renew_row is
    'result of renew_permit';
