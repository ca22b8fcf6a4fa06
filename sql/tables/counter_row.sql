-- A row of list_counters.
create type pglimit.counter_row as (
    tenant text,
    limit_name text,
    subject text,
    used bigint,
    window_start timestamptz,
    reset_at timestamptz,
    state text,
    cursor text,
    shadow_refused bigint,
    algorithm text,
    durable boolean
);

comment on type pglimit.counter_row is
    'a row of list_counters';
