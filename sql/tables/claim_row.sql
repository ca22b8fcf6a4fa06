-- Result of claim_permit. A type and not OUT arguments: it is cheaper per call, and can grow.
create type pglimit.claim_row as (
    granted boolean,
    reason text,
    permit_id bigint,
    expires_at timestamptz,
    cap bigint,
    in_use bigint,
    retry_after interval,
    time_bound interval,
    row_cap bigint,
    on_outage text,
    limit_version bigint,
    shadow_reason text
);

comment on type pglimit.claim_row is
    'result of claim_permit';
