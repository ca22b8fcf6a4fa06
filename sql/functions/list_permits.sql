-- Lists permits by ascending permit_id, a page a call: those of an endpoint or a holder, those held
-- for a while, those whose lease ends soon; tickets too, which are permits of a queue.
-- Writes and locks nothing.
create or replace function pglimit.list_permits(
    endpoint_filter text default null,
    holder_filter text default null,
    after bigint default null,
    max_rows integer default 100,
    tenant_filter text default null,
    include_lapsed boolean default false,
    held_longer_than interval default null,
    lapses_within interval default null
)
returns setof pglimit.permit_row
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
    v_claimed_by timestamptz := timestamptz 'infinity';
    v_lapses_by timestamptz := timestamptz 'infinity';
begin
    perform pglimit._check_standby('list_permits');
    perform pglimit._check_max_rows(max_rows);
    if list_permits.held_longer_than is not null then
        v_claimed_by := clock_timestamp()
            - pglimit._fixed_interval('held_longer_than', list_permits.held_longer_than);
    end if;
    if list_permits.lapses_within is not null then
        v_lapses_by := clock_timestamp()
            + pglimit._fixed_interval('lapses_within', list_permits.lapses_within);
    end if;
    return query
    select
        x.permit_id,
        x.tenant,
        x.endpoint,
        x.holder,
        x.weight,
        x.claimed_at,
        x.expires_at,
        case
            when x.expires_at <= clock_timestamp() then 'lapsed'
            when x.waits then 'waiting'
            when x.beyond then 'beyond'
            else 'live'
        end,
        x.note,
        x.reasserted_at
    from (
        select
            p.permit_id,
            split_part(coalesce(p.for_pool, p.pool), e'\x1f', 1) as tenant,
            split_part(coalesce(p.for_pool, p.pool), e'\x1f', 2) as endpoint,
            substr(
                coalesce(p.for_pool, p.pool),
                length(split_part(coalesce(p.for_pool, p.pool), e'\x1f', 1))
                    + length(split_part(coalesce(p.for_pool, p.pool), e'\x1f', 2)) + 3) as holder,
            p.weight::bigint as weight,
            p.claimed_at,
            p.expires_at,
            p.note,
            p.queue_tag is not null as waits,
            p.shadow_refused is not null as beyond,
            -- no claim pays for taking away what an earlier permit left in the lane's row
            case when p.reasserted_at = p.claimed_at then p.reasserted_at end as reasserted_at
        from pglimit.permits p
        where p.permit_id > greatest(coalesce(after, 0), 0)
            and p.claimed_at <= v_claimed_by
            and p.expires_at > '-infinity'
            and p.expires_at <= v_lapses_by
            and (include_lapsed or p.expires_at > clock_timestamp())
    ) x
    where (endpoint_filter is null or x.endpoint = endpoint_filter)
        and (holder_filter is null or x.holder = holder_filter)
        and (tenant_filter is null or x.tenant = tenant_filter)
    order by x.permit_id
    limit max_rows;
end
$$;

comment on function pglimit.list_permits(
    text, text, bigint, integer, text, boolean, interval, interval) is
    'Lists live permits, and lapsed ones whose rows are still there when asked to, by ascending '
    'permit_id; after is the last permit_id seen. PGL01 invalid argument, PGL03 on a standby.';

revoke all on function pglimit.list_permits(
    text, text, bigint, integer, text, boolean, interval, interval) from public;
