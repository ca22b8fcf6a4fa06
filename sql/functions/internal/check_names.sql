-- Refuses names that cannot be stored. `kind` is limit, endpoint or service, `member_kind` subject,
-- holder or replica_id. Called where a key is met for the first time: a key that has a row has
-- passed. Writes nothing. 1,024 bytes keep an index entry below the 2,704 that a btree page allows.
create or replace function pglimit._check_names(
    kind text,
    name text,
    member_kind text,
    member text,
    tenant text
)
returns void
language plpgsql
immutable
parallel safe
called on null input
security invoker
as $$
begin
    if name is null or btrim(name) = '' then
        raise exception using
            errcode = 'PGL01',
            message = format('%s name is %s', kind,
                case when name is null then 'null' else 'blank' end),
            detail = format('Every call names its %s.', kind),
            hint = format('Give it a name such as ''%s''.',
                case kind
                    when 'limit' then 'login_attempt'
                    when 'service' then 'shop'
                    else 'audit.export'
                end);
    end if;
    if name !~ '^[ -~]+$' collate "C" then
        raise exception using
            errcode = 'PGL01',
            message = format('%s name %s has a character that is not printable ASCII',
                kind, quote_literal(left(name, 100))),
            detail = 'Names travel in HTTP headers, which carry nothing else.',
            hint = format('Name it in letters, digits and punctuation; put other text into the %s.',
                coalesce(member_kind, 'note'));
    end if;
    if member_kind is not null and (member is null or member !~ '[^[:space:]]' collate "C") then
        raise exception using
            errcode = 'PGL01',
            message = format('%s is %s', member_kind,
                case when member is null then 'null' else 'blank' end),
            detail = format('A blank %s would be shared by everyone who has none.', member_kind),
            hint = format('Pass what identifies the caller, or skip the call when there is no %s.',
                member_kind);
    end if;
    if tenant ~ '[[:cntrl:]]' collate "C" then
        raise exception using
            errcode = 'PGL01',
            message = 'tenant has a control character',
            detail = 'Control characters separate the parts of a key.',
            hint = 'Pass an identifier such as ''t7'', or '''' for no tenant.';
    end if;
    if octet_length(tenant) + octet_length(name) + coalesce(octet_length(member), 0) > 1024 then
        raise exception using
            errcode = 'PGL01',
            message = format('key of %s bytes is too long',
                octet_length(tenant) + octet_length(name) + coalesce(octet_length(member), 0)),
            detail = format('Tenant, %s and %s together may have 1,024 bytes.',
                kind, coalesce(member_kind, 'nothing else')),
            hint = 'Pass a hash of what is long: '
                || 'encode(sha256(convert_to(value, ''UTF8'')), ''hex'').';
    end if;
end
$$;

comment on function pglimit._check_names(text, text, text, text, text) is
    'internal: raises PGL01 for a name, subject, holder or tenant that cannot be stored';

revoke all on function pglimit._check_names(text, text, text, text, text) from public;
