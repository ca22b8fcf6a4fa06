-- A row of list_permits.
create type pglimit.permit_row as (
    permit_id bigint,
    tenant text,
    endpoint text,
    holder text,
    weight bigint,
    claimed_at timestamptz,
    expires_at timestamptz,
    state text,
    note jsonb,
    reasserted_at timestamptz
);

comment on type pglimit.permit_row is
    'a row of list_permits';
