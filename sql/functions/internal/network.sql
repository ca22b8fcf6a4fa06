-- The network that an argument means: without the bits behind its mask, and in IPv4 where it is one
-- of IPv4 written as IPv6, as _address has its addresses. Raises PGL01 for null. Writes nothing.
create or replace function pglimit._network(network inet)
returns cidr
language plpgsql
immutable
parallel safe
called on null input
security invoker
as $$
begin
    if _network.network is null then
        raise exception using
            errcode = 'PGL01',
            message = 'network is null',
            detail = 'A range is the addresses of one network.',
            hint = 'Pass it as address and length of its mask, such as ''203.0.113.0/24''.';
    elsif _network.network <<= '::ffff:0:0/96' then
        return network(set_masklen(
            '0.0.0.0'::inet + (_network.network - '::ffff:0:0'::inet),
            masklen(_network.network) - 96));
    end if;
    return network(_network.network);
end
$$;

comment on function pglimit._network(inet) is
    'internal: a network without host bits, of IPv4 in IPv4';

revoke all on function pglimit._network(inet) from public;
