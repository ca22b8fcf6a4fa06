-- Lists overrides by tenant, limit and subject, a page a call; also those that are over, which do
-- nothing until they are set anew or dropped. Writes and locks nothing.
create or replace function pglimit.list_limit_overrides(
    limit_filter text default null,
    subject_filter text default null,
    after text default null,
    max_rows integer default 100,
    tenant_filter text default null
)
returns setof pglimit.limit_override_row
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
    v_tenant text := split_part(list_limit_overrides.after, e'\x1f', 1);
    v_limit_name text := split_part(list_limit_overrides.after, e'\x1f', 2);
    v_subject text := substr(
        list_limit_overrides.after, length(v_tenant) + length(v_limit_name) + 3);
begin
    perform pglimit._check_max_rows(max_rows);
    return query
    select
        o.tenant::text, o.limit_name::text, o.subject::text, o.max_hits, o.valid_from,
        o.valid_until,
        case
            when o.valid_until <= clock_timestamp() then 'over'
            when o.valid_from > clock_timestamp() then 'future'
            else 'valid'
        end,
        o.limit_version, o.updated_at, o.updated_by,
        format(e'%s\x1f%s\x1f%s', o.tenant, o.limit_name, o.subject)
    from pglimit.limit_overrides o
    where (
            list_limit_overrides.after is null
            or (o.tenant, o.limit_name, o.subject) > (v_tenant, v_limit_name, v_subject)
        )
        and (limit_filter is null or o.limit_name = limit_filter)
        and (subject_filter is null or o.subject = subject_filter)
        and (tenant_filter is null or o.tenant = tenant_filter)
    order by o.tenant, o.limit_name, o.subject
    limit max_rows;
end
$$;

comment on function pglimit.list_limit_overrides(text, text, text, integer, text) is
    'Lists overrides by tenant, limit and subject, with whether they hold now: valid, future or '
    'over; after is the last cursor seen. PGL01 invalid argument.';

revoke all on function pglimit.list_limit_overrides(text, text, text, integer, text) from public;
