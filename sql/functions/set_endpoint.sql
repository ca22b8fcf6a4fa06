-- Creates or replaces an endpoint; the next claim goes by it. Permits that are live stay live.
-- Writes: endpoints, limit_versions, changes. Locks: the creation lock of the endpoint's name, so
-- that an override made meanwhile is seen; the endpoint's row, before its version is drawn, so that
-- the version of an endpoint only grows. Whoever finds no row and then meets one
-- that somebody else has made meanwhile looks again, so that the history says what it replaced.
create or replace function pglimit.set_endpoint(
    endpoint text,
    holder_cap bigint default null,
    endpoint_cap bigint default null,
    time_bound interval default null,
    row_cap bigint default null,
    in_installation boolean default true,
    mode text default 'enforce',
    on_outage text default 'allow',
    tenant text default null,
    longest interval default null,
    fair boolean default false,
    queue_cap bigint default 1000,
    holder_queue_cap bigint default 100
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
set intervalstyle = postgres
as $$
#variable_conflict use_column
declare
    v_tenant text := coalesce(set_endpoint.tenant, current_setting('pglimit.tenant', true), '');
    v_time_bound interval;
    v_longest interval;
    v_overridden boolean;
    v_before jsonb;
    v_after jsonb;
    v_version bigint;
begin
    if current_setting('transaction_read_only') <> 'off' then
        perform pglimit._check_transaction('set_endpoint');
    end if;
    perform pglimit._check_names('endpoint', set_endpoint.endpoint, null, null, v_tenant);
    if set_endpoint.holder_cap < 0 or set_endpoint.endpoint_cap < 0 or set_endpoint.row_cap < 0 then
        raise exception using
            errcode = 'PGL01',
            message = format('a cap of %s is negative', least(
                set_endpoint.holder_cap, set_endpoint.endpoint_cap, set_endpoint.row_cap)),
            detail = 'A cap is zero (closed) or more.',
            hint = 'Pass 0 to refuse everything, or leave the cap out.';
    end if;
    if set_endpoint.in_installation is null
        or (not set_endpoint.in_installation
            and set_endpoint.holder_cap is null
            and set_endpoint.endpoint_cap is null)
    then
        raise exception using
            errcode = 'PGL01',
            message = format('endpoint %s would have no cap', quote_literal(set_endpoint.endpoint)),
            detail = 'A permit counts in at least one pool: holder, endpoint or installation.',
            hint = 'Pass holder_cap or endpoint_cap, or in_installation => true.';
    end if;
    if set_endpoint.time_bound is not null then
        v_time_bound := pglimit._fixed_interval('time_bound', set_endpoint.time_bound);
    end if;
    if set_endpoint.longest is not null then
        v_longest := pglimit._fixed_interval('longest', set_endpoint.longest);
    end if;
    perform pglimit._check_rule(set_endpoint.mode, set_endpoint.on_outage);
    perform pglimit._check_queue(
        set_endpoint.fair, set_endpoint.queue_cap, set_endpoint.holder_queue_cap);
    perform pglimit._lock_creation(5, set_endpoint.endpoint);
    v_overridden := exists (
        select
        from pglimit.endpoint_overrides o
        where o.endpoint = set_endpoint.endpoint and (v_tenant = '' or o.tenant = v_tenant));
    for v_attempt in 1..100 loop
        select to_jsonb(e)
        into v_before
        from pglimit.endpoints e
        where e.tenant = v_tenant and e.endpoint = set_endpoint.endpoint
        for update;
        if found then
            update pglimit.endpoints e
            set holder_cap = set_endpoint.holder_cap,
                endpoint_cap = set_endpoint.endpoint_cap,
                time_bound = v_time_bound,
                longest = v_longest,
                row_cap = set_endpoint.row_cap,
                in_installation = set_endpoint.in_installation,
                mode = set_endpoint.mode,
                on_outage = set_endpoint.on_outage,
                fair = set_endpoint.fair,
                queue_cap = set_endpoint.queue_cap,
                holder_queue_cap = set_endpoint.holder_queue_cap,
                overridden = v_overridden,
                limit_version = nextval('pglimit.limit_versions'),
                updated_at = clock_timestamp(),
                updated_by = session_user
            where e.tenant = v_tenant and e.endpoint = set_endpoint.endpoint
            returning e.limit_version, to_jsonb(e) into v_version, v_after;
        else
            insert into pglimit.endpoints as e (
                tenant, endpoint, holder_cap, endpoint_cap, time_bound, longest, row_cap,
                in_installation, mode, on_outage, fair, queue_cap, holder_queue_cap,
                overridden, limit_version, updated_at, updated_by)
            values (
                v_tenant, set_endpoint.endpoint, set_endpoint.holder_cap,
                set_endpoint.endpoint_cap, v_time_bound, v_longest, set_endpoint.row_cap,
                set_endpoint.in_installation, set_endpoint.mode, set_endpoint.on_outage,
                set_endpoint.fair, set_endpoint.queue_cap, set_endpoint.holder_queue_cap,
                v_overridden,
                nextval('pglimit.limit_versions'), clock_timestamp(), session_user)
            on conflict on constraint endpoints_pkey do nothing
            returning e.limit_version, to_jsonb(e) into v_version, v_after;
        end if;
        exit when v_version is not null;
    end loop;
    if v_version is null then
        perform pglimit._lost_races(set_endpoint.endpoint);
    end if;
    perform pglimit._record_change(
        'set_endpoint', v_tenant, set_endpoint.endpoint, v_before, v_after,
        version => v_version);
    return v_version;
end
$$;

comment on function pglimit.set_endpoint(
    text, bigint, bigint, interval, bigint, boolean, text, text, text, interval, boolean, bigint,
    bigint) is
    'Creates or replaces the endpoint of this name. Returns its new limit_version. '
    'PGL01 invalid argument, PGL03 read-only or standby.';

revoke all on function pglimit.set_endpoint(
    text, bigint, bigint, interval, bigint, boolean, text, text, text, interval, boolean, bigint,
    bigint) from public;
