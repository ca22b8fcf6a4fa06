-- Names what is wrong with the arguments of claim_permit; returns when nothing is. Writes nothing.
create or replace function pglimit._check_claim(
    endpoint text,
    holder text,
    holder_cap bigint,
    endpoint_cap bigint,
    installation_cap bigint,
    lease interval,
    weight bigint,
    note jsonb,
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
    perform pglimit._check_names('endpoint', endpoint, 'holder', holder, tenant);
    if holder_cap < 0 or endpoint_cap < 0 or installation_cap < 0 then
        raise exception using
            errcode = 'PGL01',
            message = format('a cap of %s is negative',
                least(holder_cap, endpoint_cap, installation_cap)),
            detail = 'A cap is zero (closed) or more.',
            hint = 'Pass 0 to refuse everything, or null to look the cap up.';
    end if;
    if weight is null or weight < 1 or weight > 1000 then
        raise exception using
            errcode = 'PGL01',
            message = format('weight of %s is out of range', coalesce(weight::text, 'null')),
            detail = 'A permit takes 1 to 1,000 slots of each of its pools.',
            hint = 'Pass weight => 1, or leave it out.';
    end if;
    if lease is not null then
        perform pglimit._fixed_interval('lease', lease);
    end if;
    if octet_length(note::text) > 4096 then
        raise exception using
            errcode = 'PGL01',
            message = format('note of %s bytes is too long', octet_length(note::text)),
            detail = 'A note may have 4,096 bytes.',
            hint = 'Store what is long elsewhere and put its identifier into the note.';
    end if;
end
$$;

comment on function pglimit._check_claim(
    text, text, bigint, bigint, bigint, interval, bigint, jsonb, text) is
    'internal: raises PGL01 for arguments that claim_permit cannot serve';

revoke all on function pglimit._check_claim(
    text, text, bigint, bigint, bigint, interval, bigint, jsonb, text) from public;
