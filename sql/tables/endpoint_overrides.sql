-- Holders who go by other bounds than the endpoint's row says. Claims look here only when the row
-- is marked as overridden.
create table pglimit.endpoint_overrides (
    tenant text collate "C" not null,
    endpoint text collate "C" not null,
    holder text collate "C" not null,
    holder_cap bigint,
    share bigint not null,
    valid_from timestamptz not null,
    valid_until timestamptz not null,
    limit_version bigint not null,
    updated_at timestamptz not null,
    updated_by text not null,
    constraint endpoint_overrides_pkey primary key (tenant, endpoint, holder),
    constraint endpoint_overrides_holder_cap_check check (holder_cap >= 0),
    constraint endpoint_overrides_share_check check (share between 1 and 1000),
    constraint endpoint_overrides_valid_until_check check (valid_until > valid_from)
);

comment on table pglimit.endpoint_overrides is
    'bounds of single holders, which beat the endpoint''s row and the arguments of a claim';
comment on column pglimit.endpoint_overrides.holder_cap is
    'null for that of the claim or the endpoint''s row';
comment on column pglimit.endpoint_overrides.share is
    'how many turns the holder''s tickets get for one of a holder without an override';
comment on column pglimit.endpoint_overrides.valid_until is
    'infinity for no end';
