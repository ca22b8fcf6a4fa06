-- A row of list_endpoint_overrides.
create type pglimit.endpoint_override_row as (
    tenant text,
    endpoint text,
    holder text,
    holder_cap bigint,
    share bigint,
    valid_from timestamptz,
    valid_until timestamptz,
    state text,
    limit_version bigint,
    updated_at timestamptz,
    updated_by text,
    cursor text
);

comment on type pglimit.endpoint_override_row is
    'a row of list_endpoint_overrides';
