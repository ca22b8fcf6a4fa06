-- Lists holds by ascending hold_id, that is from the oldest, a page a call: those of a limit or a
-- subject, those that are open. Also those that are over, until purge removes them. Both tables are
-- read by their keys, so a page that is found soon ends soon. Writes and locks nothing.
create or replace function pglimit.list_holds(
    limit_filter text default null,
    subject_filter text default null,
    after bigint default null,
    max_rows integer default 100,
    tenant_filter text default null,
    state_filter text default null
)
returns setof pglimit.held_row
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
set enable_sort = off
set jit = off
as $$
#variable_conflict use_column
begin
    perform pglimit._check_standby('list_holds');
    perform pglimit._check_max_rows(max_rows);
    if list_holds.state_filter not in ('open', 'lapsed', 'settled', 'returned') then
        raise exception using
            errcode = 'PGL01',
            message = format('unknown state %s', quote_literal(list_holds.state_filter)),
            detail = 'A hold is open, lapsed, settled or returned.',
            hint = 'Pass state_filter => ''open'', or leave it out for all.';
    end if;
    return query
    select
        x.hold_id, x.tenant::text, x.limit_name::text, x.subject::text, x.charged, x.held_at,
        x.expires_at, s.state, x.actual, x.durable
    from (
        select h.*, false as durable from pglimit.holds h
        union all
        select h.*, true from pglimit.durable_holds h
    ) x
    cross join lateral (
        select case
            when x.actual is not null then 'settled'
            when x.returned_at is not null then 'returned'
            when x.expires_at <= clock_timestamp() then 'lapsed'
            else 'open'
        end
    ) s (state)
    where x.hold_id > coalesce(list_holds.after, 0)
        and (limit_filter is null or x.limit_name = limit_filter)
        and (subject_filter is null or x.subject = subject_filter)
        and (tenant_filter is null or x.tenant = tenant_filter)
        and (state_filter is null or s.state = state_filter)
    order by x.hold_id
    limit max_rows;
end
$$;

comment on function pglimit.list_holds(text, text, bigint, integer, text, text) is
    'Lists holds by ascending hold_id, those that are over too until they are purged; after is the '
    'last hold_id seen. PGL01 invalid argument, PGL03 on a standby.';

revoke all on function pglimit.list_holds(text, text, bigint, integer, text, text) from public;
