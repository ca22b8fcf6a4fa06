-- Where purge stopped, so that its next call goes on from there. Losing it costs one pass.
create unlogged table pglimit.purge_progress (
    singleton boolean not null default true,
    permits_block bigint not null default 0,
    counters_block bigint not null default 0,
    durable_counters_block bigint not null default 0,
    last_purge_at timestamptz not null,
    holds_block bigint not null default 0,
    durable_holds_block bigint not null default 0,
    constraint purge_progress_pkey primary key (singleton),
    constraint purge_progress_singleton_check check (singleton)
);

comment on table pglimit.purge_progress is
    'the block of each table at which the next purge goes on, and when the last one ran';
