-- Lists blocks by tenant, limit and subject, a page a call; also those that are over and not yet
-- purged. Writes and locks nothing.
create or replace function pglimit.list_blocks(
    limit_filter text default null,
    subject_filter text default null,
    after text default null,
    max_rows integer default 100,
    tenant_filter text default null
)
returns setof pglimit.block_row
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
    v_tenant text := split_part(list_blocks.after, e'\x1f', 1);
    v_limit_name text := split_part(list_blocks.after, e'\x1f', 2);
    v_subject text := substr(list_blocks.after, length(v_tenant) + length(v_limit_name) + 3);
begin
    perform pglimit._check_max_rows(max_rows);
    return query
    select
        b.tenant::text, b.limit_name::text, b.subject::text, b.blocked_until,
        case when b.blocked_until <= clock_timestamp() then 'over' else 'blocked' end,
        b.strikes, b.why, b.updated_at, b.updated_by,
        format(e'%s\x1f%s\x1f%s', b.tenant, b.limit_name, b.subject)
    from pglimit.blocks b
    where (
            list_blocks.after is null
            or (b.tenant, b.limit_name, b.subject) > (v_tenant, v_limit_name, v_subject)
        )
        and (limit_filter is null or b.limit_name = limit_filter)
        and (subject_filter is null or b.subject = subject_filter)
        and (tenant_filter is null or b.tenant = tenant_filter)
    order by b.tenant, b.limit_name, b.subject
    limit max_rows;
end
$$;

comment on function pglimit.list_blocks(text, text, text, integer, text) is
    'Lists blocks by tenant, limit and subject, with whether they hold now: blocked or over; after '
    'is the last cursor seen. PGL01 invalid argument.';

revoke all on function pglimit.list_blocks(text, text, text, integer, text) from public;
