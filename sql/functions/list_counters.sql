-- Lists counters by tenant, limit and subject, a page a call, as they are kept: a change of the
-- limit that they are still to be carried over shows once they are decided on. A subject may have
-- one in either table, as its limit became durable: so a cursor begins with which of them it is of.
-- Writes and locks nothing.
create or replace function pglimit.list_counters(
    limit_filter text default null,
    subject_filter text default null,
    after text default null,
    max_rows integer default 100,
    tenant_filter text default null,
    include_closed boolean default false
)
returns setof pglimit.counter_row
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
declare
    v_after text := coalesce(substr(list_counters.after, 2), '');
    v_logged boolean := coalesce(left(list_counters.after, 1) = 'd', false);
begin
    perform pglimit._check_standby('list_counters');
    perform pglimit._check_max_rows(max_rows);
    return query
    select
        x.tenant,
        x.limit_name,
        x.subject,
        case
            -- of a bucket: what it lacks; debt may be more than a bigint
            when x.algorithm = 'token_bucket' then least(greatest(ceil(
                (
                    extract(epoch from x.reset_at - clock_timestamp()) * x.previous
                    - x.used / 1000000.0
                ) / extract(epoch from x.reset_at - x.window_start)), 0),
                9223372036854775807)::bigint
            else x.used
        end,
        x.window_start,
        x.reset_at,
        case when x.reset_at > clock_timestamp() then 'open' else 'closed' end,
        case when x.durable then 'd' else 'u' end || x.key,
        x.shadow_refused,
        x.algorithm,
        x.durable
    from (
        select
            split_part(c.key, e'\x1f', 1) as tenant,
            split_part(c.key, e'\x1f', 2) as limit_name,
            substr(
                c.key,
                length(split_part(c.key, e'\x1f', 1))
                    + length(split_part(c.key, e'\x1f', 2)) + 3) as subject,
            c.used,
            c.previous,
            c.window_start,
            coalesce(c.reset_at, c.special_reset_at) as reset_at,
            c.shadow_refused,
            coalesce(c.algorithm, 'fixed_window') as algorithm,
            c.durable,
            c.key
        from (
            -- a page of each, which the index sorts: both together would be read as a whole
            (
                select t.*, false as durable
                from pglimit.counters t
                where t.key > v_after
                    and (
                        include_closed
                        or coalesce(t.reset_at, t.special_reset_at) > clock_timestamp()
                    )
                    and (tenant_filter is null or split_part(t.key, e'\x1f', 1) = tenant_filter)
                    and (limit_filter is null or split_part(t.key, e'\x1f', 2) = limit_filter)
                    and (subject_filter is null or t.key = format(e'%s\x1f%s\x1f%s',
                        split_part(t.key, e'\x1f', 1), split_part(t.key, e'\x1f', 2),
                        subject_filter))
                order by t.key
                limit max_rows
            )
            union all
            (
                select t.*, true
                from pglimit.durable_counters t
                where t.key >= v_after
                    and (t.key > v_after or not v_logged)
                    and (
                        include_closed
                        or coalesce(t.reset_at, t.special_reset_at) > clock_timestamp()
                    )
                    and (tenant_filter is null or split_part(t.key, e'\x1f', 1) = tenant_filter)
                    and (limit_filter is null or split_part(t.key, e'\x1f', 2) = limit_filter)
                    and (subject_filter is null or t.key = format(e'%s\x1f%s\x1f%s',
                        split_part(t.key, e'\x1f', 1), split_part(t.key, e'\x1f', 2),
                        subject_filter))
                order by t.key
                limit max_rows
            )
        ) c
    ) x
    order by x.key, x.durable
    limit max_rows;
end
$$;

comment on function pglimit.list_counters(text, text, text, integer, text, boolean) is
    'Lists counters with an open window, and closed ones when asked to, by tenant, limit and '
    'subject; after is the last cursor seen. PGL01 invalid argument, PGL03 on a standby.';

revoke all on function pglimit.list_counters(text, text, text, integer, text, boolean) from public;
