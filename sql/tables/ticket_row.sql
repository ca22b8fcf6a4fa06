-- Result of enqueue_permit.
create type pglimit.ticket_row as (
    enqueued boolean,
    reason text,
    ticket bigint,
    ahead bigint,
    poll_after interval,
    deadline_at timestamptz,
    cap bigint,
    in_use bigint
);

comment on type pglimit.ticket_row is
    'result of enqueue_permit';
