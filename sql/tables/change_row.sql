-- A row of list_changes.
create type pglimit.change_row as (
    version bigint,
    changed_at timestamptz,
    changed_by text,
    action text,
    tenant text,
    name text,
    before jsonb,
    after jsonb,
    why text
);

comment on type pglimit.change_row is
    'a row of list_changes';
