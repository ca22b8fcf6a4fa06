-- Changes of limits that counters of before are still to be carried over, one row a change whose
-- carry is proportional or reset. None is made for carry keep, nor where the capacity stays. They
-- are applied to a counter when it is next decided on, one after the other by limit_version: no
-- change has to visit a million counters. `tenant` is that of the limit's row, so a row of tenant
-- '' is for every tenant it rules. By the instant, so that a hit reads what it has to apply alone.
-- Logged, as limits is. Locks: whoever writes here has the limit's row.
create table pglimit.limit_carries (
    tenant text collate "C" not null,
    limit_name text collate "C" not null,
    limit_version bigint not null,
    changed_at timestamptz not null,
    from_hits bigint,
    to_hits bigint,
    carries_until timestamptz not null,
    constraint limit_carries_pkey primary key (tenant, limit_name, changed_at, limit_version),
    constraint limit_carries_from_hits_check check (from_hits > 0),
    constraint limit_carries_to_hits_check check (to_hits >= 0)
);

comment on table pglimit.limit_carries is
    'changes of limits that open counters are still to be carried over';
comment on column pglimit.limit_carries.changed_at is
    'a counter that was begun, or last carried, before this instant is carried';
comment on column pglimit.limit_carries.from_hits is
    'capacity before the change; null, as to_hits, where counts of before are nothing (reset)';
comment on column pglimit.limit_carries.carries_until is
    'when no counter of before the change can be open any more';
