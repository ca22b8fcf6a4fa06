-- The changes of a limit that a counter is still to be carried over: those of the row that decides,
-- and not of a later one that its reader did not see, made after the counter was begun or last
-- carried (`begun`). `reset` says that what is counted is nothing; else used times to_hits[i] over
-- from_hits[i], rounded up, for each i in turn. A subject whose override held at the change had
-- another quota, which did not change: so its count is not scaled. set_limit_override and
-- drop_limit_override carry the counter first, so the override that is there is the one that was.
-- Writes and locks nothing.
create or replace function pglimit._find_carries(
    rule pglimit.limits,
    tenant text,
    subject text,
    begun timestamptz,
    out reset boolean,
    out from_hits bigint[],
    out to_hits bigint[],
    out changed_at timestamptz
)
returns record
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
begin
    select
        coalesce(bool_or(c.from_hits is null), false),
        array_agg(c.from_hits order by c.limit_version),
        array_agg(c.to_hits order by c.limit_version),
        max(c.changed_at)
    into reset, from_hits, to_hits, changed_at
    from pglimit.limit_carries c
    where c.tenant = _find_carries.rule.tenant
        and c.limit_name = _find_carries.rule.limit_name
        and c.limit_version <= _find_carries.rule.limit_version
        and c.changed_at > coalesce(_find_carries.begun, '-infinity')
        and (
            c.from_hits is null
            or not exists (
                select
                from pglimit.limit_overrides o
                where o.tenant = _find_carries.tenant
                    and o.limit_name = _find_carries.rule.limit_name
                    and o.subject = _find_carries.subject
                    and coalesce(o.valid_from <= c.changed_at, true)
                    and coalesce(o.valid_until > c.changed_at, true)
            )
        );
end
$$;

comment on function pglimit._find_carries(pglimit.limits, text, text, timestamptz) is
    'internal: the changes of a limit that a counter is still to be carried over';

revoke all on function pglimit._find_carries(pglimit.limits, text, text, timestamptz) from public;
