-- Counts of durable limits, as in counters, but logged: what was answered survives a crash of the
-- server.
create table pglimit.durable_counters (
    key text collate "C" not null,
    turn bigint not null,
    changes integer not null,
    used bigint not null,
    window_start timestamptz not null,
    reset_at timestamptz,
    special_reset_at timestamptz,
    shadow_refused bigint not null default 0,
    overridden boolean not null default false,
    algorithm text,
    previous bigint,
    open_since timestamptz,
    bucket_sums bigint[],
    counted_by bigint,
    counted_at timestamptz,
    constraint durable_counters_pkey primary key (key, turn)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

comment on table pglimit.durable_counters is
    'counts of hits on durable limits, which survive a crash; columns as in counters';
