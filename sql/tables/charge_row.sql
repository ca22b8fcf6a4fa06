-- Result of charge.
create type pglimit.charge_row as (
    charged boolean,
    reason text,
    remaining bigint,
    debt bigint,
    reset_at timestamptz
);

comment on type pglimit.charge_row is
    'result of charge';
