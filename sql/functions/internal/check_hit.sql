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
    if algorithm not in ('fixed_window', 'sliding_window', 'token_bucket', 'calendar') then
        raise exception using
            errcode = 'PGL01',
            message = format('algorithm %s is unknown', quote_literal(left(algorithm, 100))),
            detail = 'A limit counts in a fixed_window, a sliding_window, a token_bucket or a '
                || 'window of the calendar.',
            hint = 'Leave algorithm out for fixed_window.';
    end if;
    if per is not null then
        if algorithm = 'calendar' then
            perform pglimit._calendar_unit(per);
        elsif algorithm is not null or max_hits is not null then
            perform pglimit._fixed_interval('per', per);
        end if;
    end if;
    if burst is not null and (algorithm is distinct from 'token_bucket' or burst < 1) then
        raise exception using
            errcode = 'PGL01',
            message = case
                when burst < 1 then format('burst of %s is out of range', burst)
                when algorithm is null then 'burst without algorithm'
                else format('burst with algorithm %s', algorithm)
            end,
            detail = 'It is how much a token_bucket holds when it is full: 1 or more. A call says '
                || 'both, also where the limit''s row is one of a token_bucket.',
            hint = 'Leave burst out, or pass algorithm => ''token_bucket''.';
    end if;
end
$$;

comment on function pglimit._check_hit(text, text, bigint, interval, bigint, text, bigint, text) is
    'internal: raises PGL01 for arguments that hit and peek cannot serve';

revoke all on function
    pglimit._check_hit(text, text, bigint, interval, bigint, text, bigint, text) from public;
