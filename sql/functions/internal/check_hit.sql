-- Names what is wrong with the arguments of hit and peek; returns when nothing is. Called when the
-- entry point's cheap test fails and where a key is met for the first time. Writes nothing.
create or replace function pglimit._check_hit(
    limit_name text,
    subject text,
    max_hits bigint,
    per interval,
    cost bigint,
    algorithm text,
    burst bigint,
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
    perform pglimit._check_names('limit', limit_name, 'subject', subject, tenant);
    if cost is null or cost < 0 then
        raise exception using
            errcode = 'PGL01',
            message = format('cost of %s is out of range', coalesce(cost::text, 'null')),
            detail = 'A cost is zero (a look) or more.',
            hint = 'To clear a count call pglimit.forget.';
    end if;
    if max_hits < 0 then
        raise exception using
            errcode = 'PGL01',
            message = format('max_hits of %s is negative', max_hits),
            detail = 'A limit is zero (closed) or more.',
            hint = 'Pass max_hits => 0 to refuse everything.';
    end if;
    if per is not null then
        perform pglimit._fixed_interval('per', per);
    end if;
    if algorithm <> 'fixed_window' then
        raise exception using
            errcode = 'PGL01',
            message = format('algorithm %s is not served by this version',
                quote_literal(algorithm)),
            detail = 'This version of pglimit counts in fixed windows.',
            hint = 'Leave algorithm out, or pass algorithm => ''fixed_window''.';
    end if;
    if burst is not null then
        raise exception using
            errcode = 'PGL01',
            message = 'burst is not served by this version',
            detail = 'A fixed window has no burst of its own: it lets max_hits by at any pace.',
            hint = 'Leave burst out.';
    end if;
end
$$;

comment on function pglimit._check_hit(text, text, bigint, interval, bigint, text, bigint, text) is
    'internal: raises PGL01 for arguments that hit and peek cannot serve';

revoke all on function
    pglimit._check_hit(text, text, bigint, interval, bigint, text, bigint, text) from public;
