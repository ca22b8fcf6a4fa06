-- Which replicas of a service are ready: each says so again before its time is over. Unlogged:
-- after a crash they are back with their next heartbeats.
create unlogged table pglimit.replicas (
    service text collate "C" not null,
    replica_id text collate "C" not null,
    ready_until timestamptz not null,
    constraint replicas_pkey primary key (service, replica_id)
) with (
    fillfactor = 50
);

comment on table pglimit.replicas is
    'replicas of services that are ready; emptied by a crash of the server';
comment on column pglimit.replicas.ready_until is
    'when it counts no more, unless there is another heartbeat';
