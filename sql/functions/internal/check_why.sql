-- Refuses a reason that tells nobody anything, or more than the history should hold. Writes
-- nothing.
create or replace function pglimit._check_why(why text)
returns void
language plpgsql
immutable
parallel safe
called on null input
security invoker
as $$
begin
    if why is null or why !~ '[^[:space:]]' collate "C" then
        raise exception using
            errcode = 'PGL01',
            message = format('why is %s', case when why is null then 'null' else 'blank' end),
            detail = 'A release by force, like a block, is recorded with its reason.',
            hint = 'Say it in a few words: why => ''worker 7 is gone''.';
    end if;
    if octet_length(why) > 1024 then
        raise exception using
            errcode = 'PGL01',
            message = format('why of %s bytes is too long', octet_length(why)),
            detail = 'A reason may have 1,024 bytes.',
            hint = 'Name the ticket that tells the rest.';
    end if;
end
$$;

comment on function pglimit._check_why(text) is
    'internal: raises PGL01 for a reason that is blank or too long';

revoke all on function pglimit._check_why(text) from public;
