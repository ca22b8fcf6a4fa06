-- A row of list_blocks: of a subject, or of a network.
create type pglimit.block_row as (
    tenant text,
    limit_name text,
    subject text,
    network cidr,
    blocked_until timestamptz,
    state text,
    strikes bigint,
    why text,
    updated_at timestamptz,
    updated_by text,
    cursor text
);

comment on type pglimit.block_row is
    'a row of list_blocks';
