-- Creates or replaces an endpoint; the next claim goes by it. Permits that are live stay live.
-- Writes: endpoints, limit_versions. Locks: the endpoint's row.
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
    longest interval default null
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
as $$
#variable_conflict use_column
declare
    v_tenant text := coalesce(set_endpoint.tenant, current_setting('pglimit.tenant', true), '');
    v_time_bound interval;
    v_longest interval;
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
    insert into pglimit.endpoints as e (
        tenant, endpoint, holder_cap, endpoint_cap, time_bound, longest, row_cap, in_installation,
        mode, on_outage, limit_version, updated_at, updated_by)
    values (
        v_tenant, set_endpoint.endpoint, set_endpoint.holder_cap, set_endpoint.endpoint_cap,
        v_time_bound, v_longest, set_endpoint.row_cap, set_endpoint.in_installation,
        set_endpoint.mode, set_endpoint.on_outage, nextval('pglimit.limit_versions'),
        clock_timestamp(), session_user)
    on conflict on constraint endpoints_pkey do update set
        holder_cap = excluded.holder_cap,
        endpoint_cap = excluded.endpoint_cap,
        time_bound = excluded.time_bound,
        longest = excluded.longest,
        row_cap = excluded.row_cap,
        in_installation = excluded.in_installation,
        mode = excluded.mode,
        on_outage = excluded.on_outage,
        -- whoever drew a later one may have been here first
        limit_version = case
            when excluded.limit_version > e.limit_version then excluded.limit_version
            else nextval('pglimit.limit_versions')
        end,
        updated_at = clock_timestamp(),
        updated_by = excluded.updated_by
    returning e.limit_version into v_version;
    return v_version;
end
$$;

comment on function pglimit.set_endpoint(
    text, bigint, bigint, interval, bigint, boolean, text, text, text, interval) is
    'Creates or replaces the endpoint of this name. Returns its new limit_version. '
    'PGL01 invalid argument, PGL03 read-only or standby.';

revoke all on function pglimit.set_endpoint(
    text, bigint, bigint, interval, bigint, boolean, text, text, text, interval) from public;
