-- Lists blocks by tenant and limit, of each the subjects and then the networks, a page a call; also
-- those that are over and not yet purged. A filter for a subject shows the block of it and those of
-- the networks it is in. Writes and locks nothing.
create or replace function pglimit.list_blocks(
    limit_filter text default null,
    subject_filter text default null,
    after text default null,
    max_rows integer default 100,
    tenant_filter text default null,
    network_filter inet default null
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
    v_at text := split_part(list_blocks.after, e'\x1f', 3);
    v_subject text := substr(
        list_blocks.after, length(v_tenant) + length(v_limit_name) + length(v_at) + 4);
    v_address inet := pglimit._address(subject_filter);
    v_network cidr;
begin
    perform pglimit._check_max_rows(max_rows);
    if network_filter is not null then
        v_network := pglimit._network(network_filter);
    end if;
    if v_at <> ''
        and (
            pglimit._address(split_part(v_at, '/', 1)) is null
            or v_at !~ '^[^/]+(/[0-9]{1,2}|/1[01][0-9]|/12[0-8])?$'
        )
    then
        raise exception using
            errcode = 'PGL01',
            message = format('after %s is no cursor', quote_literal(left(list_blocks.after, 100))),
            detail = 'The next page begins behind the last row of the one before.',
            hint = 'Pass the column cursor of that row, as it is.';
    end if;
    return query
    select
        x.tenant::text, x.limit_name::text, x.subject::text, x.network, x.blocked_until,
        case when x.blocked_until <= clock_timestamp() then 'over' else 'blocked' end,
        x.strikes, x.why, x.updated_at, x.updated_by,
        -- the network before the subject, which alone may hold a separator
        format(e'%s\x1f%s\x1f%s\x1f%s', x.tenant, x.limit_name, x.network, x.subject)
    from (
        (
            select
                b.tenant, b.limit_name, b.subject, null::cidr as network, b.blocked_until,
                b.strikes, b.why, b.updated_at, b.updated_by
            from pglimit.blocks b
            where b.subject <> ''
                and v_network is null
                and (
                    list_blocks.after is null
                    or case
                        when v_at = '' then (b.tenant, b.limit_name, b.subject)
                            > (v_tenant, v_limit_name, v_subject)
                        else (b.tenant, b.limit_name) > (v_tenant, v_limit_name)
                    end
                )
                and (limit_filter is null or b.limit_name = limit_filter)
                and (subject_filter is null or b.subject = subject_filter)
                and (tenant_filter is null or b.tenant = tenant_filter)
            order by b.tenant, b.limit_name, b.subject
            limit max_rows
        )
        union all
        (
            select
                r.tenant, r.limit_name, null, r.network, r.blocked_until,
                0, r.why, r.updated_at, r.updated_by
            from pglimit.block_ranges r
            where (
                    list_blocks.after is null
                    or case
                        when v_at = '' then (r.tenant, r.limit_name)
                            >= (v_tenant, v_limit_name)
                        else (r.tenant, r.limit_name, r.network)
                            > (v_tenant, v_limit_name, v_at::cidr)
                    end
                )
                and (limit_filter is null or r.limit_name = limit_filter)
                and (subject_filter is null or r.network >>= v_address)
                and (tenant_filter is null or r.tenant = tenant_filter)
                and (v_network is null or r.network = v_network)
            order by r.tenant, r.limit_name, r.network
            limit max_rows
        )
    ) x
    order by x.tenant, x.limit_name, x.subject nulls last, x.network
    limit max_rows;
end
$$;

comment on function pglimit.list_blocks(text, text, text, integer, text, inet) is
    'Lists blocks of subjects and of networks by tenant and limit, with whether they hold now: '
    'blocked or over; after is the last cursor seen. PGL01 invalid argument.';

revoke all on function pglimit.list_blocks(text, text, text, integer, text, inet) from public;
