-- What single subjects have instead of a limit's max_hits, for a time or for ever. Exact in tenant,
-- limit and subject. Logged, unlike counters: a promise to a customer must survive a crash. hit
-- reads it for keys without a counter and for counters that are stamped (see counters), only.
create table pglimit.limit_overrides (
    tenant text collate "C" not null,
    limit_name text collate "C" not null,
    subject text collate "C" not null,
    max_hits bigint not null,
    valid_from timestamptz,
    valid_until timestamptz,
    limit_version bigint not null,
    updated_at timestamptz not null,
    updated_by text not null,
    constraint limit_overrides_pkey primary key (tenant, limit_name, subject),
    constraint limit_overrides_max_hits_check check (max_hits >= 0),
    constraint limit_overrides_valid_until_check check (valid_from < valid_until)
);

comment on table pglimit.limit_overrides is
    'max_hits of single subjects; beats the limit''s row and the arguments of a call';
comment on column pglimit.limit_overrides.valid_from is
    'first instant at which it holds; null: since it was set';
comment on column pglimit.limit_overrides.valid_until is
    'first instant at which it holds no more; null: for ever';
comment on column pglimit.limit_overrides.limit_version is
    'from the same count as the versions of limits and endpoints';
