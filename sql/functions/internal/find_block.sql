-- Which block refuses a subject at a limit at an instant: of those of the subject and of networks
-- it is in, at the limit or at every limit, the one that ends last. All null where there is none.
-- However many networks there are it reads few: they are sorted by their first address, of those
-- the wider first. So all that contain an address come before it, and what is met in between shows
-- how wide the next one is at least. Each step is one index descent, and there are 33, or of IPv6
-- 129, at most. Writes and locks nothing.
create or replace function pglimit._find_block(
    tenant text,
    limit_name text,
    subject text,
    at timestamptz
)
returns pglimit.block_row
language plpgsql
stable
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_address inet := pglimit._address(_find_block.subject);
    v_name text;
    v_network cidr;
    v_found pglimit.block_row;
begin
    select
        b.tenant, b.limit_name, b.subject, null::cidr, b.blocked_until, 'blocked', b.strikes,
        b.why, b.updated_at, b.updated_by, null::text
    into v_found
    from pglimit.blocks b
    where b.tenant = _find_block.tenant
        and b.limit_name in (_find_block.limit_name, '*')
        and b.subject = _find_block.subject
        and coalesce(b.blocked_until > _find_block.at, true)
    order by b.blocked_until desc nulls first
    limit 1;
    if v_address is null then
        return v_found;
    end if;
    with recursive walk as (
        select n.limit_name collate "C" as limit_name, v_address as last, null::cidr as network,
            null::timestamptz as blocked_until
        from unnest(array[_find_block.limit_name, '*']) n (limit_name)
        union all
        select
            w.limit_name,
            case
                when family(f.network) <> family(v_address) or masklen(f.network) = 0 then null
                when f.network >>= v_address
                    then set_masklen(f.network, masklen(f.network) - 1)::inet
                else inet_merge(f.network, v_address)::inet
            end,
            f.network,
            f.blocked_until
        from walk w
        cross join lateral (
            select r.network, r.blocked_until
            from pglimit.block_ranges r
            where r.tenant = _find_block.tenant
                and r.limit_name = w.limit_name
                and r.network <= w.last
            order by r.network desc
            limit 1
        ) f
    )
    select w.limit_name, w.network
    into v_name, v_network
    from walk w
    where w.network >>= v_address
        and coalesce(w.blocked_until > _find_block.at, true)
        and (v_found.tenant is null or coalesce(w.blocked_until > v_found.blocked_until,
            v_found.blocked_until is not null))
    order by w.blocked_until desc nulls first
    limit 1;
    if found then
        select
            r.tenant, r.limit_name, null::text, r.network, r.blocked_until, 'blocked', 0, r.why,
            r.updated_at, r.updated_by, null::text
        into v_found
        from pglimit.block_ranges r
        where r.tenant = _find_block.tenant and r.limit_name = v_name and r.network = v_network;
    end if;
    return v_found;
end
$$;

comment on function pglimit._find_block(text, text, text, timestamptz) is
    'internal: the block of a subject, or of a network it is in, that ends last';

revoke all on function pglimit._find_block(text, text, text, timestamptz) from public;
