-- A row of show_sign_in: one of the three counts that a sign-in goes by.
create type pglimit.sign_in_state_row as (
    limit_name text,
    subject text,
    used bigint,
    quota bigint,
    remaining bigint,
    retry_after interval,
    reset_at timestamptz,
    known boolean
);

comment on type pglimit.sign_in_state_row is
    'a row of show_sign_in';
