-- A row of list_holds.
create type pglimit.held_row as (
    hold_id bigint,
    tenant text,
    limit_name text,
    subject text,
    charged bigint,
    held_at timestamptz,
    expires_at timestamptz,
    state text,
    actual bigint,
    durable boolean
);

comment on type pglimit.held_row is
    'a row of list_holds';
