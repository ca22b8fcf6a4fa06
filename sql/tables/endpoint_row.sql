-- A row of list_endpoints.
create type pglimit.endpoint_row as (
    tenant text,
    endpoint text,
    holder_cap bigint,
    endpoint_cap bigint,
    time_bound interval,
    longest interval,
    row_cap bigint,
    in_installation boolean,
    mode text,
    on_outage text,
    limit_version bigint,
    updated_at timestamptz,
    updated_by text,
    cursor text,
    fair boolean,
    queue_cap bigint,
    holder_queue_cap bigint,
    waiting bigint,
    shadow_refused bigint
);

comment on type pglimit.endpoint_row is
    'a row of list_endpoints';
