-- Result of hit and peek. A type and not OUT arguments: it is cheaper per call, and can grow.
create type pglimit.hit_row as (
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

comment on type pglimit.hit_row is
    'result of hit and peek';
