-- A row of counters or durable_counters on its way through a decision: columns as there, in order.
create type pglimit.counter_state as (
    key text,
    turn bigint,
    changes integer,
    used bigint,
    window_start timestamptz,
    reset_at timestamptz,
    special_reset_at timestamptz,
    shadow_refused bigint,
    overridden boolean,
    algorithm text,
    previous bigint,
    open_since timestamptz,
    bucket_sums bigint[],
    counted_by bigint,
    counted_at timestamptz
);

comment on type pglimit.counter_state is
    'internal: a counter on its way through a decision';
