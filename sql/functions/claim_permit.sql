-- Claims `weight` slots in each pool asked for, all or nothing. Writes: permits (the lanes taken);
-- in a new epoch also installation and sentinel. Locks, in order: lanes of the holder's, the
-- endpoint's, the installation's pool, none of which it waits for; the advisory lock of a pool
-- whose lanes are made. Every pool is looked at before the first lane is locked, so that a refusal
-- writes nothing unless it lost a race. The number is drawn after every lane is locked, so it
-- grows with each hand-over of a lane; then one update gives all lanes their new turn, which sorts
-- after every dead one. Correct without purge: a lane is free as soon as its lease has ended.
create or replace function pglimit.claim_permit(
    endpoint text,
    holder text,
    holder_cap bigint default null,
    endpoint_cap bigint default null,
    installation_cap bigint default null,
    lease interval default null,
    weight bigint default 1,
    request_id text default null,
    note jsonb default null,
    tenant text default null
)
returns pglimit.claim_row
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
set jit = off
as $$
#variable_conflict use_column
declare
    v_tenant text := coalesce(claim_permit.tenant, current_setting('pglimit.tenant', true), '');
    v_for text := v_tenant || e'\x1f' || claim_permit.endpoint || e'\x1f' || claim_permit.holder;
    v_row_caps bigint[];
    v_lease interval := claim_permit.lease;
    v_time_bound interval;
    v_row_cap bigint;
    v_on_outage text;
    v_version bigint;
    v_reasons text[] := array['holder', 'endpoint', 'installation'];
    v_pools text[] := array[
        v_for, v_tenant || e'\x1f' || claim_permit.endpoint || e'\x1f', e'\x1f\x1f'];
    v_caps bigint[] := array[
        claim_permit.holder_cap, claim_permit.endpoint_cap, claim_permit.installation_cap];
    v_first integer;
    v_in_use bigint;
    v_free_at timestamptz;
    v_tids tid[];
    v_taken tid[] := array[]::tid[];
    v_least_cap bigint;
    v_least_in_use bigint;
    v_id bigint;
    v_now timestamptz;
    v_expires timestamptz;
begin
    if current_setting('transaction_isolation') <> 'read committed'
        or current_setting('transaction_read_only') <> 'off'
        or pg_current_xact_id_if_assigned() is not null
    then
        perform pglimit._check_transaction('claim_permit');
    end if;
    if (
        btrim(claim_permit.endpoint) <> ''
        and btrim(claim_permit.holder) <> ''
        and claim_permit.endpoint !~ '[^ -~]' collate "C"
        and v_tenant !~ '[[:cntrl:]]' collate "C"
        and octet_length(v_for) <= 1026
        and claim_permit.weight between 1 and 1000
        and claim_permit.request_id is null
        and claim_permit.note is null
        and least(v_caps[1], v_caps[2], v_caps[3], 0) = 0
        and coalesce(claim_permit.lease, '1 s') > '0 s'
    ) is not true then
        perform pglimit._check_claim(
            claim_permit.endpoint, claim_permit.holder, claim_permit.holder_cap,
            claim_permit.endpoint_cap, claim_permit.installation_cap, claim_permit.lease,
            claim_permit.weight, claim_permit.request_id, claim_permit.note, v_tenant);
    end if;

    select
        array[
            e.holder_cap,
            e.endpoint_cap,
            case when e.in_installation
                then (select i.installation_cap from pglimit.installation i where i.singleton) end],
        e.time_bound, e.row_cap, e.on_outage, e.limit_version
    into v_row_caps, v_time_bound, v_row_cap, v_on_outage, v_version
    from pglimit.endpoints e
    where e.tenant = v_tenant and e.endpoint = claim_permit.endpoint;
    if not found and v_tenant <> '' then
        select
            array[
                e.holder_cap,
                e.endpoint_cap,
                case when e.in_installation
                    then (
                        select i.installation_cap from pglimit.installation i where i.singleton)
                end],
            e.time_bound, e.row_cap, e.on_outage, e.limit_version
        into v_row_caps, v_time_bound, v_row_cap, v_on_outage, v_version
        from pglimit.endpoints e
        where e.tenant = '' and e.endpoint = claim_permit.endpoint;
    end if;
    if v_row_caps is not null then
        for k in 1..3 loop
            v_caps[k] := coalesce(v_caps[k], v_row_caps[k]);
        end loop;
    end if;
    if coalesce(v_caps[1], v_caps[2], v_caps[3]) is null then
        raise exception using
            errcode = 'PGL02',
            message = format('unknown endpoint %s', quote_literal(claim_permit.endpoint)),
            detail = 'The call gives no cap, and no row of pglimit.endpoints has this name.',
            hint = format(
                'Create it: select pglimit.set_endpoint(%s, holder_cap => 2, '
                || 'time_bound => ''1 minute''); or pass a cap and a lease with the call.',
                quote_literal(claim_permit.endpoint));
    end if;
    v_lease := coalesce(v_lease, v_time_bound + interval '30 s');
    if v_lease is null then
        raise exception using
            errcode = 'PGL01',
            message = format('endpoint %s has no lease', quote_literal(claim_permit.endpoint)),
            detail = 'Neither the call nor a row of pglimit.endpoints says how long the permit '
                || 'may live, and there is no silent default.',
            hint = 'Pass lease => ''30 s'', or set the time_bound of the endpoint.';
    end if;
    v_lease := pglimit._fixed_interval('lease', v_lease);

    -- look at every pool first, then take them in order; a pool asked for alone needs no look, for
    -- nothing is locked before it
    for v_phase in 1..2 loop
        for k in 1..3 loop
            continue when v_caps[k] is null;
            if claim_permit.weight > v_caps[k] then
                select f.in_use into v_in_use from pglimit._find_lanes(v_pools[k], v_caps[k], 1) f;
                return row(
                    false, 'never', null, null, v_caps[k], v_in_use, null,
                    v_time_bound, v_row_cap, v_on_outage, v_version)::pglimit.claim_row;
            end if;
            if v_phase = 1 then
                if v_first is null then
                    v_first := k;
                    continue when coalesce(v_caps[k + 1], v_caps[k + 2]) is null;
                end if;
                select f.in_use, f.free_at
                into v_in_use, v_free_at
                from pglimit._find_lanes(v_pools[k], v_caps[k], claim_permit.weight) f;
            else
                select f.in_use, f.free_at, f.taken
                into v_in_use, v_free_at, v_tids
                from pglimit._take_lanes(v_pools[k], v_caps[k], claim_permit.weight) f;
                v_taken := v_taken || v_tids;
            end if;
            if v_in_use + claim_permit.weight > v_caps[k] then
                return row(
                    false, v_reasons[k], null, null, v_caps[k], v_in_use,
                    greatest(v_free_at - clock_timestamp(), interval '1 microsecond'),
                    v_time_bound, v_row_cap, v_on_outage, v_version)::pglimit.claim_row;
            end if;
            if v_phase = 2
                and (v_least_cap is null
                    or v_caps[k] - v_in_use - claim_permit.weight < v_least_cap - v_least_in_use)
            then
                v_least_cap := v_caps[k];
                v_least_in_use := v_in_use + claim_permit.weight;
            end if;
        end loop;
    end loop;

    for v_attempt in 1..10 loop
        select s.epoch * 549755813888 + nextval('pglimit.permit_number')
        into v_id
        from pglimit.sentinel s
        where s.singleton;
        exit when found;
        perform pglimit._begin_epoch(null);
    end loop;
    v_now := clock_timestamp();
    v_expires := v_now + v_lease;
    update pglimit.permits p
    set turn = greatest(p.turn + 1, (date_part('epoch', v_now) * 1000000)::bigint),
        permit_id = v_id,
        expires_at = v_expires,
        row_count = cardinality(v_taken),
        claimed_at = case when p.ctid = v_taken[1] then v_now end,
        lease = case when p.ctid = v_taken[1] then v_lease end,
        weight = case when p.ctid = v_taken[1] then claim_permit.weight end,
        for_pool = case when p.ctid = v_taken[1] and p.pool <> v_for then v_for end,
        note = case when p.ctid = v_taken[1] then claim_permit.note end
    where p.ctid = any (v_taken);
    return row(
        true, 'granted', v_id, v_expires, v_least_cap, v_least_in_use, null,
        v_time_bound, v_row_cap, v_on_outage, v_version)::pglimit.claim_row;
end
$$;

comment on function pglimit.claim_permit(
    text, text, bigint, bigint, bigint, interval, bigint, text, jsonb, text) is
    'Claims a permit of a heavy endpoint for a holder, within the caps of holder, endpoint and '
    'installation, all or nothing. One row; a refusal is a row with granted = false that names '
    'the pool. PGL01 invalid argument, PGL02 unknown endpoint, PGL03 wrong transaction, '
    '55P03 after 1 s of waiting.';

revoke all on function pglimit.claim_permit(
    text, text, bigint, bigint, bigint, interval, bigint, text, jsonb, text) from public;
