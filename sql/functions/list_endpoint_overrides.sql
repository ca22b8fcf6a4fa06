-- Lists holders with bounds of their own, by tenant, endpoint and holder, a page a call. Writes and
-- locks nothing.
create or replace function pglimit.list_endpoint_overrides(
    endpoint_filter text default null,
    holder_filter text default null,
    after text default null,
    max_rows integer default 100,
    tenant_filter text default null
)
returns setof pglimit.endpoint_override_row
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
set jit = off
as $$
#variable_conflict use_column
declare
    v_tenant text := split_part(list_endpoint_overrides.after, e'\x1f', 1);
    v_endpoint text := split_part(list_endpoint_overrides.after, e'\x1f', 2);
    v_holder text := substr(
        list_endpoint_overrides.after, length(v_tenant) + length(v_endpoint) + 3);
begin
    perform pglimit._check_max_rows(max_rows);
    return query
    select
        o.tenant::text, o.endpoint::text, o.holder::text, o.holder_cap, o.share, o.valid_from,
        nullif(o.valid_until, 'infinity'),
        case
            when o.valid_from > clock_timestamp() then 'future'
            when o.valid_until > clock_timestamp() then 'valid'
            else 'over'
        end,
        o.limit_version, o.updated_at, o.updated_by,
        o.tenant || e'\x1f' || o.endpoint || e'\x1f' || o.holder
    from pglimit.endpoint_overrides o
    where (
            list_endpoint_overrides.after is null
            or (o.tenant, o.endpoint, o.holder) > (v_tenant, v_endpoint, v_holder)
        )
        and (endpoint_filter is null or o.endpoint = endpoint_filter)
        and (holder_filter is null or o.holder = holder_filter)
        and (tenant_filter is null or o.tenant = tenant_filter)
    order by o.tenant, o.endpoint, o.holder
    limit max_rows;
end
$$;

comment on function pglimit.list_endpoint_overrides(text, text, text, integer, text) is
    'Lists holders with bounds of their own, with whether they hold now: valid, future or over; '
    'after is the last cursor seen. PGL01 invalid argument.';

revoke all on function pglimit.list_endpoint_overrides(text, text, text, integer, text)
from public;
