-- Refuses what a limit or endpoint row of this version cannot mean. Writes nothing.
create or replace function pglimit._check_rule(mode text, on_outage text)
returns void
language plpgsql
immutable
parallel safe
called on null input
security invoker
as $$
begin
    if mode is distinct from 'enforce' then
        raise exception using
            errcode = 'PGL01',
            message = format('mode %s is not served by this version',
                coalesce(quote_literal(mode), 'null')),
            detail = 'This version of pglimit enforces every limit.',
            hint = 'Leave mode out, or pass mode => ''enforce''.';
    end if;
    if on_outage is null or on_outage not in ('allow', 'refuse') then
        raise exception using
            errcode = 'PGL01',
            message = format('on_outage %s is unknown', coalesce(quote_literal(on_outage), 'null')),
            detail = 'It tells clients what to do while the database cannot be reached.',
            hint = 'Pass on_outage => ''allow'' or ''refuse''.';
    end if;
end
$$;

comment on function pglimit._check_rule(text, text) is
    'internal: raises PGL01 for a mode or outage policy that this version does not serve';

revoke all on function pglimit._check_rule(text, text) from public;
