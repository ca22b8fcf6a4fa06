-- Lists what operators changed, the newest first, a page a call. Writes and locks nothing. A change
-- gets its version before it commits, so one that commits late can appear below newer ones.
create or replace function pglimit.list_changes(
    name_filter text default null,
    after bigint default null,
    max_rows integer default 100,
    tenant_filter text default null,
    action_filter text default null
)
returns setof pglimit.change_row
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
        c.version, c.changed_at, c.changed_by, c.action, c.tenant::text, c.name::text, c.before,
        c.after, c.why
    from pglimit.changes c
    where c.version < coalesce(list_changes.after, 9223372036854775807)
        and (name_filter is null or c.name = name_filter)
        and (tenant_filter is null or c.tenant = tenant_filter)
        and (action_filter is null or c.action = action_filter)
    order by c.version desc
    limit max_rows;
end
$$;

comment on function pglimit.list_changes(text, bigint, integer, text, text) is
    'Lists what operators changed, the newest first; after is the last version seen. '
    'PGL01 invalid argument.';

revoke all on function pglimit.list_changes(text, bigint, integer, text, text) from public;
