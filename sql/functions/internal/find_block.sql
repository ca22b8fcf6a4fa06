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
    v_last inet;
    v_row pglimit.block_ranges;
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
    foreach v_name in array array[_find_block.limit_name, '*'] loop
        v_last := v_address;
        for v_step in 0..128 loop
            exit when v_found.tenant is not null and v_found.blocked_until is null;
            select r.*
            into v_row
            from pglimit.block_ranges r
            where r.tenant = _find_block.tenant
                and r.limit_name = v_name
                and r.network <= v_last
            order by r.network desc
            limit 1;
            exit when not found or family(v_row.network) <> family(v_address);
            if v_row.network >>= v_address then
                if coalesce(v_row.blocked_until > _find_block.at, true)
                    and coalesce(v_row.blocked_until > v_found.blocked_until, true)
                then
                    v_found := row(
                        v_row.tenant, v_row.limit_name, null, v_row.network, v_row.blocked_until,
                        'blocked', 0, v_row.why, v_row.updated_at, v_row.updated_by, null);
                end if;
                exit when masklen(v_row.network) = 0;
                v_last := set_masklen(v_row.network, masklen(v_row.network) - 1);
            else
                v_last := inet_merge(v_row.network, v_address);
            end if;
        end loop;
    end loop;
    return v_found;
end
$$;

comment on function pglimit._find_block(text, text, text, timestamptz) is
    'internal: the block of a subject, or of a network it is in, that ends last';

revoke all on function pglimit._find_block(text, text, text, timestamptz) from public;
