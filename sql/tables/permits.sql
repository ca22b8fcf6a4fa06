-- Permits as lanes and turns. A pool is tenant, endpoint and holder joined by the unit separator
-- (0x1f): with an empty holder it is the endpoint's pool, with all three empty the installation's.
-- Tenants and endpoints hold no such character and no holder is empty, so pools cannot meet, and
-- descending order of the pools of one permit is holder, endpoint, installation. A pool has lanes
-- 1, 2, …; the current row of a lane is the one with the highest turn. A lane is free when that row
-- has lapsed or was released (expires_at -infinity). A permit holds `weight` lanes in each of its
-- pools, all rows with its permit_id and one expires_at; its head row alone (claimed_at is not
-- null) carries what is listed. Two more pools of an endpoint have names with an empty endpoint,
-- which no claim can ask for: the queue (holder 'q' and the endpoint), whose permits are tickets
-- and whose lane 0 is no place but the state of the queue; and 'b', the permits granted beyond the
-- caps, as modes shadow and off do.
create unlogged table pglimit.permits (
    pool text collate "C" not null,
    lane integer not null,
    turn bigint not null,
    permit_id bigint not null,
    expires_at timestamptz not null,
    row_count integer not null,
    changes integer not null default 0,
    swept_turn bigint not null default 0,
    claimed_at timestamptz,
    lease interval,
    ends_at timestamptz,
    weight integer,
    for_pool text collate "C",
    request text collate "C",
    note jsonb,
    queue_tag double precision,
    ahead integer,
    full_pool integer,
    asked_caps bigint[],
    asked_lease interval,
    shadow_refused bigint,
    reasserted_at timestamptz,
    constraint permits_pkey primary key (pool, lane, turn)
) with (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

create index permits_permit_id_idx on pglimit.permits (permit_id);

create index permits_request_permit_id_idx on pglimit.permits (request, permit_id)
where request is not null;

comment on table pglimit.permits is
    'lanes of the pools and the permits that hold them; emptied by a crash of the server';
comment on column pglimit.permits.pool is
    'tenant, endpoint and holder, joined by the unit separator (0x1f)';
comment on column pglimit.permits.row_count is
    'how many rows the permit has over all its pools; 0 once it is known that it has lapsed';
comment on column pglimit.permits.changes is
    'hand-overs since the dead turns before swept_turn were visited';
comment on column pglimit.permits.claimed_at is
    'when the permit was claimed; set on its head row alone';
comment on column pglimit.permits.ends_at is
    'when the permit ends however often it is renewed; null without a longest of its endpoint';
comment on column pglimit.permits.request is
    'tenant, endpoint, holder and request_id of the claim; set on the head row alone';
comment on column pglimit.permits.reasserted_at is
    'claimed_at of a permit that was reasserted; another instant is that of an earlier permit here';
comment on column pglimit.permits.for_pool is
    'tenant, endpoint and holder of the permit, where the head row lies in a shared pool';
comment on column pglimit.permits.queue_tag is
    'virtual finish of a ticket, by which tickets are served; of lane 0: of the last one served';
comment on column pglimit.permits.ahead is
    'tickets that were before this one when it last wrote';
comment on column pglimit.permits.full_pool is
    'the pool that last had no room for this ticket: 1 holder, 2 endpoint, 3 installation';
comment on column pglimit.permits.asked_caps is
    'caps of holder, endpoint and installation that the ticket''s claim gives';
comment on column pglimit.permits.asked_lease is
    'the lease that the ticket''s claim gives';
comment on column pglimit.permits.shadow_refused is
    'claims granted in this lane in mode shadow that mode enforce would have refused';
