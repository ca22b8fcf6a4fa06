-- Endpoints by name. A row of a tenant beats the row of tenant '', which holds for everyone.
create table pglimit.endpoints (
    tenant text collate "C" not null,
    endpoint text collate "C" not null,
    holder_cap bigint,
    endpoint_cap bigint,
    time_bound interval,
    longest interval,
    row_cap bigint,
    in_installation boolean not null,
    mode text not null,
    on_outage text not null,
    limit_version bigint not null,
    updated_at timestamptz not null,
    updated_by text not null,
    fair boolean not null default false,
    queue_cap bigint not null default 1000,
    holder_queue_cap bigint not null default 100,
    overridden boolean not null default false,
    special boolean not null
        generated always as (mode <> 'enforce' or fair or overridden) stored,
    constraint endpoints_pkey primary key (tenant, endpoint),
    constraint endpoints_holder_cap_check check (holder_cap >= 0),
    constraint endpoints_endpoint_cap_check check (endpoint_cap >= 0),
    constraint endpoints_time_bound_check check (time_bound > '0 s'),
    constraint endpoints_longest_check check (longest > '0 s'),
    constraint endpoints_row_cap_check check (row_cap >= 0),
    constraint endpoints_some_cap_check
        check (holder_cap is not null or endpoint_cap is not null or in_installation),
    constraint endpoints_mode_check check (mode in ('enforce', 'shadow', 'off')),
    constraint endpoints_on_outage_check check (on_outage in ('allow', 'refuse')),
    constraint endpoints_queue_cap_check check (queue_cap between 0 and 1000),
    constraint endpoints_holder_queue_cap_check check (holder_queue_cap between 0 and 1000)
);

comment on table pglimit.endpoints is
    'heavy endpoints and their bounds, read by claim_permit for what the caller leaves out';
comment on column pglimit.endpoints.time_bound is
    'how long one request may run; a permit lasts this and 30 s more';
comment on column pglimit.endpoints.longest is
    'how long a permit may last, renewals included; null for no bound';
comment on column pglimit.endpoints.in_installation is
    'whether permits of this endpoint count against the installation cap';
comment on column pglimit.endpoints.fair is
    'whether a claim without a ticket is refused while tickets wait';
comment on column pglimit.endpoints.queue_cap is
    'tickets that may wait at once';
comment on column pglimit.endpoints.holder_queue_cap is
    'tickets of one holder that may wait at once';
comment on column pglimit.endpoints.overridden is
    'whether endpoint_overrides may have a row for a holder who claims by this row';
comment on column pglimit.endpoints.special is
    'whether a claim must look further than this row';
