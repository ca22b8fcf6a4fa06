-- Result of hold.
create type pglimit.hold_row as (
    held boolean,
    reason text,
    hold_id bigint,
    remaining bigint,
    retry_after interval,
    expires_at timestamptz
);

comment on type pglimit.hold_row is
    'result of hold';
