-- Stamps the newest counters of all subjects that are addresses in a network, at one limit or, with
-- the limit_name *, at all that the tenant has counted, as _stamp_counter does one. By sets, since
-- they may be many and nobody makes a counter meanwhile: of each limit the keys in the spans where
-- such addresses can lie, then their rows' locks in the order of the keys, then one update. The
-- caller holds the table of creation locks. Writes: counters. Locks: those rows.
create or replace function pglimit._stamp_network(limit_name text, network cidr, tenant text)
returns void
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_name text := _stamp_network.limit_name;
    v_after text := _stamp_network.tenant || e'\x1f';
    v_end constant text := _stamp_network.tenant || e'\x20';
    v_prefix text;
    v_firsts text[];
    v_ends text[];
    v_keys text[];
    v_tids tid[];
begin
    select s.firsts, s.ends
    into v_firsts, v_ends
    from pglimit._address_spans(_stamp_network.network) s;
    loop
        if _stamp_network.limit_name = '*' then
            select split_part(c.key, e'\x1f', 2)
            into v_name
            from pglimit.counters c
            where c.key > v_after and c.key < v_end
            order by c.key
            limit 1;
            exit when not found;
            -- behind all keys of this limit: 0x20 comes after the separator, 0x1f
            v_after := format(e'%s\x1f%s\x20', _stamp_network.tenant, v_name);
        end if;
        v_prefix := format(e'%s\x1f%s\x1f', _stamp_network.tenant, v_name);
        select array_agg(distinct c.key order by c.key)
        into v_keys
        from unnest(v_firsts, v_ends) s (first, before)
        cross join lateral (
            select n.key
            from pglimit.counters n
            where n.key >= v_prefix || s.first and n.key < v_prefix || s.before
            offset 0 -- or all keys could be read once, instead of the spans
        ) c
        where pglimit._address(substr(c.key, length(v_prefix) + 1)) <<= _stamp_network.network;
        v_tids := pglimit._lock_counts(v_keys, null, false);
        -- a statement of its own: to see rows that changed while their locks were waited for
        update pglimit.counters c
        set turn = case
                when c.changes < 64 then c.turn
                else greatest(
                    c.turn + 1, (date_part('epoch', clock_timestamp()) * 1000000)::bigint)
            end,
            changes = case when c.changes < 64 then c.changes + 1 else 0 end,
            overridden = true,
            reset_at = null,
            special_reset_at = coalesce(c.reset_at, c.special_reset_at)
        where c.ctid = any (v_tids);
        exit when _stamp_network.limit_name <> '*';
    end loop;
end
$$;

comment on function pglimit._stamp_network(text, cidr, text) is
    'internal: makes the next hits of all addresses in a network look for its block';

revoke all on function pglimit._stamp_network(text, cidr, text) from public;
