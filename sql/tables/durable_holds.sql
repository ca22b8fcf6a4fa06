-- Holds of durable limits, as in holds, but logged: they survive a crash of the server with the
-- counts that they correct.
create table pglimit.durable_holds (
    hold_id bigint not null,
    tenant text collate "C" not null,
    limit_name text collate "C" not null,
    subject text collate "C" not null,
    max_hits bigint,
    per interval,
    algorithm text,
    burst bigint,
    charged bigint not null,
    window_start timestamptz,
    open_since timestamptz,
    reset_at timestamptz,
    used_part bigint,
    bucket_sums bigint[],
    hit_time numeric,
    held_at timestamptz not null,
    expires_at timestamptz not null,
    returns boolean not null,
    actual bigint,
    returned_at timestamptz,
    constraint durable_holds_pkey primary key (hold_id)
) with (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

comment on table pglimit.durable_holds is
    'holds of durable limits, which survive a crash; columns as in holds';
