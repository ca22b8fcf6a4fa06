-- Networks whose addresses are refused for a time or for ever, at one limit or, with the limit_name
-- *, at every limit of their tenant: what blocks is for single subjects. Logged, as that. IPv4 is
-- IPv4 here also where it was written as IPv6. hit reads it where it reads blocks, for keys without
-- a counter and for counters that are stamped; who adds a row stamps the counters that are there.
create table pglimit.block_ranges (
    tenant text collate "C" not null,
    limit_name text collate "C" not null,
    network cidr not null,
    blocked_until timestamptz,
    why text,
    updated_at timestamptz not null,
    updated_by text not null,
    constraint block_ranges_pkey primary key (tenant, limit_name, network)
);

create index block_ranges_blocked_until_idx on pglimit.block_ranges (blocked_until);

comment on table pglimit.block_ranges is
    'networks whose addresses are refused for a time or for ever; otherwise as blocks';
comment on column pglimit.block_ranges.limit_name is
    'the limit; * is every limit';
comment on column pglimit.block_ranges.blocked_until is
    'first instant at which it holds no more, and purge may remove it; null: for ever';
