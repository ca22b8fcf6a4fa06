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
    v_address inet;
begin
    if subject ~ '^(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])'
        '(\.(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}$'
    then
        return subject::inet;
    elsif subject ~ '^[0-9A-Fa-f.]*:[0-9A-Fa-f:.]+(%[^/%]+)?(/128)?$' then
        v_text := substring(subject from '^[^%/]+');
        if v_text ~ '^([0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}$'
            or v_text ~ '^([0-9A-Fa-f]{1,4}:){6}'
                '(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])'
                '(\.(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}$'
            -- with :: in it, so of seven groups at most: a tail in IPv4 stands for two
            or v_text ~ '^(([0-9A-Fa-f]{1,4}:)*[0-9A-Fa-f]{1,4})?::'
                '(([0-9A-Fa-f]{1,4}:)*[0-9A-Fa-f]{1,4})?$'
                and cardinality(array_remove(string_to_array(v_text, ':'), '')) <= 7
            or v_text ~ '^(([0-9A-Fa-f]{1,4}:)*[0-9A-Fa-f]{1,4})?::([0-9A-Fa-f]{1,4}:)*'
                '(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])'
                '(\.(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}$'
                and cardinality(array_remove(string_to_array(v_text, ':'), '')) <= 6
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
