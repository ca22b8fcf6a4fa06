-- Result of admit: a row for each want, with what hit or claim_permit say of one.
create type pglimit.admit_row as (
    ordinal integer,
    admitted boolean,
    reason text,
    limit_name text,
    subject text,
    endpoint text,
    holder text,
    quota bigint,
    remaining bigint,
    reset_at timestamptz,
    permit_id bigint,
    expires_at timestamptz,
    cap bigint,
    in_use bigint,
    retry_after interval,
    time_bound interval,
    row_cap bigint,
    on_outage text,
    limit_version bigint
);

comment on type pglimit.admit_row is
    'result of admit';
