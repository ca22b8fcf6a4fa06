-- Result of check_sign_in.
create type pglimit.sign_in_row as (
    verdict text,
    delay interval,
    reason text,
    retry_after interval
);

comment on type pglimit.sign_in_row is
    'result of check_sign_in';
