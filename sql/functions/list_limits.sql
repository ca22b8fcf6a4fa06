-- Lists the limits that are set, by tenant and name, a page a call. Writes and locks nothing.
-- Of a limit in mode shadow it adds up what its counters say, by index; not on a standby, which
-- cannot read them.
create or replace function pglimit.list_limits(
    limit_filter text default null,
    after text default null,
    max_rows integer default 100,
    tenant_filter text default null
)
returns setof pglimit.limit_row
language plpgsql
volatile
parallel unsafe
called on null input
security definer
rows 100
set search_path = pg_catalog, pg_temp
set row_security = on
set lock_timeout = '1s'
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
begin
    perform pglimit._check_max_rows(max_rows);
    return query
    select
        l.tenant::text, l.limit_name::text, l.max_hits, l.per, l.algorithm, l.burst, l.durable,
        l.mode, l.on_outage, l.limit_version, l.updated_at, l.updated_by,
        l.tenant || e'\x1f' || l.limit_name,
        case
            when l.mode = 'shadow' and not pg_is_in_recovery()
            then pglimit._shadow_refused(l.tenant, l.limit_name)
        end,
        l.time_zone, l.on_lapse
    from pglimit.limits l
    where (
            after is null
            or (l.tenant, l.limit_name)
                > (split_part(after, e'\x1f', 1), split_part(after, e'\x1f', 2))
        )
        and (limit_filter is null or l.limit_name = limit_filter)
        and (tenant_filter is null or l.tenant = tenant_filter)
    order by l.tenant, l.limit_name
    limit max_rows;
end
$$;

comment on function pglimit.list_limits(text, text, integer, text) is
    'Lists the limits that are set, by tenant and name; after is the last cursor seen. '
    'PGL01 invalid argument.';

revoke all on function pglimit.list_limits(text, text, integer, text) from public;
