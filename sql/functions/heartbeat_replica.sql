-- Says that a replica of a service is ready for the next ttl, or with a ttl of nothing that it is
-- no more, and how many are. Writes: replicas (one row). Locks: that row. Safe under concurrency:
-- the count is of what is committed, and may be a heartbeat behind that of another replica, which
-- is what a registry that is read every few seconds can promise.
create or replace function pglimit.heartbeat_replica(
    service text,
    replica_id text,
    ttl interval default '15 s'
)
returns bigint
language plpgsql
volatile
parallel unsafe
called on null input
security definer
set search_path = pg_catalog, pg_temp
set row_security = on
set lock_timeout = '1s'
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    v_now timestamptz;
begin
    if current_setting('transaction_isolation') <> 'read committed'
        or current_setting('transaction_read_only') <> 'off'
        or pg_current_xact_id_if_assigned() is not null
    then
        perform pglimit._check_transaction('heartbeat_replica');
    end if;
    perform pglimit._check_names(
        'service', heartbeat_replica.service, 'replica_id', heartbeat_replica.replica_id, '');
    if heartbeat_replica.ttl is distinct from '0 s' then
        heartbeat_replica.ttl := pglimit._fixed_interval('ttl', heartbeat_replica.ttl);
    end if;
    v_now := clock_timestamp();
    insert into pglimit.replicas as r (service, replica_id, ready_until)
    values (
        heartbeat_replica.service, heartbeat_replica.replica_id, v_now + heartbeat_replica.ttl)
    on conflict on constraint replicas_pkey do update
    set ready_until = excluded.ready_until;
    return (
        select count(*)
        from pglimit.replicas r
        where r.service = heartbeat_replica.service
            and r.ready_until > v_now);
end
$$;

comment on function pglimit.heartbeat_replica(text, text, interval) is
    'Says that a replica of a service is ready for the next ttl, 0 s that it is no more, and '
    'returns how many are. PGL01 invalid argument, PGL03 wrong transaction, 55P03 after 1 s of '
    'waiting.';

revoke all on function pglimit.heartbeat_replica(text, text, interval) from public;
