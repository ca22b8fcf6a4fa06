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
    if mode is null or mode not in ('enforce', 'shadow', 'off') then
        raise exception using
            errcode = 'PGL01',
            message = format('mode %s is unknown', coalesce(quote_literal(mode), 'null')),
            detail = 'enforce refuses; shadow lets everything go on and counts what it would have '
                || 'refused; off lets everything go on.',
            hint = 'Pass mode => ''enforce'', ''shadow'' or ''off''.';
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
    'internal: raises PGL01 for a mode or outage policy that there is not';

revoke all on function pglimit._check_rule(text, text) from public;
