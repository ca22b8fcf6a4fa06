-- Counts of open windows, newest first: the current row of a key is the one with the highest turn,
-- found by a backward index scan that stops at it. It is updated in place up to 64 times and then
-- moves on to a higher turn, so that dead versions a held snapshot pins lie behind it, where no
-- scan goes. Nothing that changes within a turn is indexed: those updates are heap-only. The key
-- is one column, tenant, limit name and subject joined by the unit separator (0x1f): one
-- comparison per step of the index descent instead of three. Neither tenant nor limit name can
-- hold that character, so no two keys meet, and the order is still tenant, limit, subject.
-- A row is stamped when it is not for hit's straight way: its subject may have an override or a
-- block that is not over, or it counts by another algorithm than windows. Then reset_at is null,
-- and special_reset_at is what it would be. The straight way compares reset_at with the clock and
-- so misses it; only the special way pays for the look. Of a key with either the newest row is
-- always stamped, or there is none: whoever sets the override holds the key's creation lock and
-- then stamps the row, and who makes a row holds that lock too.
-- Whatever the algorithm, what a row counts is nothing once its reset_at has passed:
--   * fixed_window, calendar: hits of the window that ends then, in used;
--   * sliding_window: used in the window that began at window_start, previous in the one before;
--     reset_at is the last allowed hit plus the window's length;
--   * token_bucket: reset_at is the instant at which the bucket is full again (GCRA's theoretical
--     arrival time), used what that was rounded up by, in parts of max_hits, which is previous;
--     window_start is reset_at less per.
-- open_since tells a counter from the one that was here before it, for holds: windows that the
-- straight way begins have a window_start of their own and leave it as it is. A counter that is
-- carried over a change of its limit gets a new one: so it is carried once, and holds of before are
-- of another.
create unlogged table pglimit.counters (
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
    'end of the window; a count whose window has ended is nothing. Null in a stamped row';
comment on column pglimit.counters.special_reset_at is
    'end of the window of a stamped row, whose subject may have a limit of its own';
comment on column pglimit.counters.overridden is
    'whether the subject may have an override or a block';
comment on column pglimit.counters.algorithm is
    'sliding_window or token_bucket; null for windows, fixed or of the calendar';
comment on column pglimit.counters.previous is
    'hits of the window before, or of what used is a part';
comment on column pglimit.counters.open_since is
    'when the special way last found nothing counted here';
comment on column pglimit.counters.bucket_sums is
    'of a token bucket, in microseconds since open_since: given back by settlements, by refunds; '
    'charged by holds that are not settled';
comment on column pglimit.counters.counted_by is
    'the limit_version of the row by which it counts, where a straight way may go on with it';
comment on column pglimit.counters.counted_at is
    'of a token bucket: when it was last changed, and so until when it leaked at the rate it has';
comment on column pglimit.counters.shadow_refused is
    'hits of this window that were allowed in mode shadow only';
