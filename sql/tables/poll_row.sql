-- Result of poll_ticket.
create type pglimit.poll_row as (
    granted boolean,
    reason text,
    permit_id bigint,
    expires_at timestamptz,
    ahead bigint,
    poll_after interval,
    cap bigint,
    in_use bigint,
    retry_after interval,
    time_bound interval,
    row_cap bigint,
    on_outage text,
    limit_version bigint,
    shadow_reason text
);

comment on type pglimit.poll_row is
    'result of poll_ticket';
