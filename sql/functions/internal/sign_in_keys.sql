-- The subjects under which a sign-in is counted: hashes, with the installation's secret, of the
-- account, of the source, and of both. An account's spellings that people take for one are one:
-- space around it, case and, in a database in UTF-8, Unicode forms are folded. A source is an
-- address: IPv4 also where it is written as IPv6 (mapped, or by NAT64), of IPv6 the network of 64
-- bits, for whoever has one address there has 2^64. Raises PGL01 for what is blank, which would be
-- shared by all who have none, and for a source that is no address. Writes and locks nothing.
create or replace function pglimit._sign_in_keys(
    account text,
    source text,
    out pair text,
    out source_key text,
    out account_key text
)
returns record
language plpgsql
stable
parallel unsafe
called on null input
security invoker
as $$
declare
    v_account text;
    v_address inet;
    v_secret bytea;
begin
    if _sign_in_keys.account is null
        or _sign_in_keys.account !~ '[^[:space:]]'
        or _sign_in_keys.source is null
        or _sign_in_keys.source !~ '[^[:space:]]'
    then
        raise exception using
            errcode = 'PGL01',
            message = 'account or source is null or blank',
            detail = 'A blank one would be shared by everyone who has none.',
            hint = 'Pass the name as it was typed and the peer''s address, or refuse the sign-in '
                || 'before the call.';
    end if;
    if octet_length(_sign_in_keys.account) > 1024 then
        -- whoever signs in chooses it, and folding it takes as long as it is
        raise exception using
            errcode = 'PGL01',
            message = format('account of %s bytes is too long',
                octet_length(_sign_in_keys.account)),
            detail = 'An account may have 1,024 bytes.',
            hint = 'Refuse the sign-in before the call: there is no such account.';
    end if;
    v_account := regexp_replace(_sign_in_keys.account, '^[[:space:]]+|[[:space:]]+$', '', 'g');
    if current_setting('server_encoding') = 'UTF8' then
        v_account := normalize(lower(normalize(v_account, nfc)), nfc);
    else
        v_account := lower(v_account);
    end if;
    begin
        v_address := regexp_replace(btrim(_sign_in_keys.source), '%[^/]*$', '')::inet;
    exception when invalid_text_representation then
        v_address := null;
    end;
    if v_address is null
        or masklen(v_address) <> (case family(v_address) when 4 then 32 else 128 end)
    then
        raise exception using
            errcode = 'PGL01',
            message = format('source %s is no address',
                quote_literal(left(_sign_in_keys.source, 100))),
            detail = 'Sign-ins are counted by IPv4 address and by IPv6 network.',
            hint = 'Pass the peer''s address without its port, such as ''203.0.113.7''; behind a '
                || 'proxy of your own the one that this proxy added.';
    end if;
    if v_address << '::ffff:0:0/96' then
        v_address := '0.0.0.0'::inet + (v_address - '::ffff:0:0'::inet);
    elsif v_address << '64:ff9b::/96' then
        v_address := '0.0.0.0'::inet + (v_address - '64:ff9b::'::inet);
    elsif family(v_address) = 6 then
        v_address := network(set_masklen(v_address, 64));
    end if;

    select i.secret into v_secret from pglimit.installation i where i.singleton;
    account_key := 'account' || e'\x1f' || v_account;
    source_key := 'source' || e'\x1f' || host(v_address);
    pair := 'pair' || e'\x1f' || host(v_address) || e'\x1f' || v_account;
    -- twice, so that nobody can lengthen what was hashed; 128 bits of it
    account_key := left(encode(sha256(v_secret || sha256(
        v_secret || convert_to(account_key, 'UTF8'))), 'hex'), 32);
    source_key := left(encode(sha256(v_secret || sha256(
        v_secret || convert_to(source_key, 'UTF8'))), 'hex'), 32);
    pair := left(encode(sha256(v_secret || sha256(
        v_secret || convert_to(pair, 'UTF8'))), 'hex'), 32);
end
$$;

comment on function pglimit._sign_in_keys(text, text) is
    'internal: the hashes under which a sign-in is counted; raises PGL01 for what is blank or no '
    'address';

revoke all on function pglimit._sign_in_keys(text, text) from public;
