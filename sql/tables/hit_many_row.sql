-- Result of hit_many: the place in the arrays, then what hit answers.
create type pglimit.hit_many_row as (
    ordinal integer,
    allowed boolean,
    reason text,
    quota bigint,
    remaining bigint,
    retry_after interval,
    reset_at timestamptz,
    on_outage text,
    limit_version bigint,
    charged bigint
);

comment on type pglimit.hit_many_row is
    'result of hit_many';
