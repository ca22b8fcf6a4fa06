-- Counts of open windows, newest first: the current row of a key is the one with the highest turn,
-- found by a backward index scan that stops at it. It is updated in place up to 64 times and then
-- moves on to a higher turn, so that dead versions a held snapshot pins lie behind it, where no
-- scan goes. Nothing that changes within a turn is indexed: those updates are heap-only. The key
-- is one column, tenant, limit name and subject joined by the unit separator (0x1f): one
-- comparison per step of the index descent instead of three. Neither tenant nor limit name can
-- hold that character, so no two keys meet, and the order is still tenant, limit, subject.
create unlogged table pglimit.counters (
    key text collate "C" not null,
    turn bigint not null,
    changes integer not null,
    used bigint not null,
    window_start timestamptz not null,
    reset_at timestamptz not null,
    constraint counters_pkey primary key (key, turn)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

comment on table pglimit.counters is
    'counts of hits by tenant, limit and subject; emptied by a crash of the server';
comment on column pglimit.counters.key is
    'tenant, limit name and subject, joined by the unit separator (0x1f)';
comment on column pglimit.counters.turn is
    'the highest turn of a key is its current row; starts from the clock in microseconds';
comment on column pglimit.counters.reset_at is
    'end of the window; a count whose window has ended is nothing';
