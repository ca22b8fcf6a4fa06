-- A row of list_limits.
create type pglimit.limit_row as (
    tenant text,
    limit_name text,
    max_hits bigint,
    per interval,
    algorithm text,
    burst bigint,
    durable boolean,
    mode text,
    on_outage text,
    limit_version bigint,
    updated_at timestamptz,
    updated_by text,
    cursor text,
    shadow_refused bigint,
    time_zone text,
    on_lapse text
);

comment on type pglimit.limit_row is
    'a row of list_limits';
