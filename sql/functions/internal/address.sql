-- The address that a subject is: of any text that PostgreSQL takes for that of one host, with or
-- without a full mask, also where an IPv6 zone follows. IPv4 is IPv4 where it is written as IPv6
-- too (::ffff:203.0.113.7). Null for all else, and for broken IPv6 that PostgreSQL takes as well
-- (::ffff:203.0.113). Text is cast only where the cast cannot fail, so it raises nothing and needs
-- no subtransaction. Writes and locks nothing.
create or replace function pglimit._address(subject text)
returns inet
language plpgsql
immutable
parallel safe
called on null input
security invoker
as $$
declare
    v_text text;
    v_groups text;
    v_count integer;
    v_address inet;
begin
    if subject ~ '^(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])'
        '(\.(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}$'
    then
        return subject::inet;
    elsif subject ~ '^[0-9A-Fa-f.]*:[0-9A-Fa-f:.]+(%[^/%]+)?(/128)?$' then
        v_text := substring(subject from '^[^%/]+');
        v_groups := v_text;
        if position('.' in v_text) > 0 then
            -- a tail in IPv4 stands for two groups
            if v_text !~ ':(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])'
                '(\.(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}$'
            then
                return null;
            end if;
            v_groups := regexp_replace(v_text, '[^:]+$', '0:0');
        end if;
        if v_groups ~ '\.|[0-9A-Fa-f]{5}|:::|::.*::|^:[^:]|[^:]:$' then
            return null;
        end if;
        v_count := cardinality(array_remove(string_to_array(v_groups, ':'), ''));
        if v_count = 8 and position('::' in v_groups) = 0
            or v_count <= 7 and position('::' in v_groups) > 0
        then
            v_address := v_text::inet;
            if v_address << '::ffff:0:0/96' then
                return '0.0.0.0'::inet + (v_address - '::ffff:0:0'::inet);
            end if;
            return v_address;
        end if;
    elsif subject ~ '^0*(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])'
        '(\.0*(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}\.?(/0*32)?$'
    then
        return rtrim(split_part(subject, '/', 1), '.')::inet;
    end if;
    return null;
end
$$;

comment on function pglimit._address(text) is
    'internal: the address that a subject is, or null';

revoke all on function pglimit._address(text) from public;
