-- A row of list_limit_overrides.
create type pglimit.limit_override_row as (
    tenant text,
    limit_name text,
    subject text,
    max_hits bigint,
    valid_from timestamptz,
    valid_until timestamptz,
    state text,
    limit_version bigint,
    updated_at timestamptz,
    updated_by text,
    cursor text
);

comment on type pglimit.limit_override_row is
    'a row of list_limit_overrides';
