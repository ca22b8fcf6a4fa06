-- Where, in the order of "C", texts of addresses in a network can lie: from each of `firsts` on up
-- to before the one of `ends` beside it. They may overlap, and hold others too: it only spares
-- reading most of the keys. Of IPv4 the octets that the mask fixes are one prefix, or one of them
-- begins with 0, or it is written as IPv6, which then begins with 0 or a colon. Of IPv6 it is the
-- first group, in any case. Writes nothing.
create or replace function pglimit._address_spans(
    network cidr,
    out firsts text[],
    out ends text[]
)
returns record
language plpgsql
immutable
parallel safe
called on null input
security invoker
as $$
declare
    v_octets text[];
    v_prefix text;
    v_group text;
    v_prefixes text[] := array[''];
begin
    if family(_address_spans.network) = 4 then
        firsts := array['0', ':'];
        ends := array['1', ';'];
        v_octets := string_to_array(host(_address_spans.network), '.');
        for v_fixed in 0..masklen(_address_spans.network) / 8 loop
            v_prefix := array_to_string(v_octets[:v_fixed], '.');
            if v_fixed = masklen(_address_spans.network) / 8 then
                -- one address may have a dot or a mask behind it
                firsts := firsts || case v_fixed when 0 then '0' when 4 then v_prefix
                    else v_prefix || '.' end;
                ends := ends || case v_fixed when 0 then ':' when 4 then v_prefix || '0'
                    else v_prefix || '/' end;
            elsif v_fixed > 0 then
                firsts := firsts || (v_prefix || '.0');
                ends := ends || (v_prefix || '.1');
            end if;
        end loop;
    elsif masklen(_address_spans.network) < 16 then
        firsts := array['0', 'A', 'a'];
        ends := array[';', 'G', 'g'];
    else
        v_group := coalesce(nullif(split_part(host(_address_spans.network), ':', 1), ''), '0');
        for v_place in 1..length(v_group) loop
            v_prefixes := array(
                select distinct p.prefix || c.letter
                from unnest(v_prefixes) p (prefix)
                cross join unnest(array[
                    substr(v_group, v_place, 1), upper(substr(v_group, v_place, 1))
                ]) c (letter));
        end loop;
        firsts := array(select p.prefix || ':' from unnest(v_prefixes) p (prefix));
        ends := array(select p.prefix || ';' from unnest(v_prefixes) p (prefix));
        if length(v_group) < 4 then
            firsts := firsts || '0'::text;
            ends := ends || '1'::text;
        end if;
        if v_group = '0' then
            firsts := firsts || ':'::text;
            ends := ends || ';'::text;
        end if;
    end if;
end
$$;

comment on function pglimit._address_spans(cidr) is
    'internal: where texts of addresses in a network can lie';

revoke all on function pglimit._address_spans(cidr) from public;
