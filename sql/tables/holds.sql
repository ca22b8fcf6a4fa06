-- What hold charged ahead of knowing what it would be, until purge removes it: settled ones too, so
-- that settling twice is found out. Unlogged, as the counts they correct; those of durable limits
-- are in durable_holds. Nothing is indexed but the number, so a settlement is a heap-only update.
-- window_start, open_since and reset_at say of which window the charge is part: of a counter that
-- has others, nothing is given back.
create unlogged table pglimit.holds (
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
    constraint holds_pkey primary key (hold_id)
) with (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

comment on table pglimit.holds is
    'hits charged by an estimate, to be settled; emptied by a crash of the server';
comment on column pglimit.holds.hold_id is
    'from the numbers of permits, with the epoch: never given twice';
comment on column pglimit.holds.max_hits is
    'the limit, where the call brought it; null, as per, where the limit''s row gives it';
comment on column pglimit.holds.open_since is
    'of the counter after the charge, as window_start';
comment on column pglimit.holds.reset_at is
    'end of the counter after the charge; until then the charge can be corrected';
comment on column pglimit.holds.used_part is
    'of a token bucket: what reset_at was rounded up by';
comment on column pglimit.holds.bucket_sums is
    'of the counter before the charge; last what it was charged itself';
comment on column pglimit.holds.hit_time is
    'of a token bucket: microseconds that a hit took to leak when it was charged';
comment on column pglimit.holds.returns is
    'whether purge is to give it back once it has lapsed; false when it has';
comment on column pglimit.holds.actual is
    'what it was settled at; null before';
comment on column pglimit.holds.returned_at is
    'when purge gave back of it what was still counted; null before';
