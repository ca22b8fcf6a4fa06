-- Lists the endpoints that are set, by tenant and name, a page a call. Writes and locks nothing.
create or replace function pglimit.list_endpoints(
    endpoint_filter text default null,
    after text default null,
    max_rows integer default 100,
    tenant_filter text default null
)
returns setof pglimit.endpoint_row
language plpgsql
volatile
parallel unsafe
called on null input
security definer
rows 100
set search_path = pg_catalog, pg_temp
set row_security = on
set lock_timeout = '1s'
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
begin
    perform pglimit._check_max_rows(max_rows);
    return query
    select
        e.tenant::text, e.endpoint::text, e.holder_cap, e.endpoint_cap, e.time_bound, e.longest,
        e.row_cap, e.in_installation, e.mode, e.on_outage, e.limit_version, e.updated_at,
        e.updated_by, e.tenant || e'\x1f' || e.endpoint, e.fair, e.queue_cap, e.holder_queue_cap,
        q.waiting, q.shadow_refused
    from pglimit.endpoints e
    cross join lateral pglimit._endpoint_pools(e.tenant, e.endpoint) q
    where (
            after is null
            or (e.tenant, e.endpoint)
                > (split_part(after, e'\x1f', 1), split_part(after, e'\x1f', 2))
        )
        and (endpoint_filter is null or e.endpoint = endpoint_filter)
        and (tenant_filter is null or e.tenant = tenant_filter)
    order by e.tenant, e.endpoint
    limit max_rows;
end
$$;

comment on function pglimit.list_endpoints(text, text, integer, text) is
    'Lists the endpoints that are set, by tenant and name; after is the last cursor seen. '
    'PGL01 invalid argument.';

revoke all on function pglimit.list_endpoints(text, text, integer, text) from public;
