-- Looks at, or counts, one attempt at one of the three limits of sign-ins: by the limit's row,
-- which install_ready makes and set_limit changes, or without one by what such a row would be.
-- Writes and locks: counting, what hit does.
create or replace function pglimit._sign_in_hit(
    limit_name text,
    subject text,
    tenant text,
    look_only boolean
)
returns pglimit.hit_row
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_max bigint;
    v_per interval;
begin
    perform
    from pglimit.limits l
    where l.tenant in (_sign_in_hit.tenant, '') and l.limit_name = _sign_in_hit.limit_name;
    if not found then
        select r.max_hits, r.per
        into v_max, v_per
        from pglimit._ready_limit(_sign_in_hit.limit_name) r;
    end if;
    return pglimit._hit_special(
        _sign_in_hit.limit_name, _sign_in_hit.subject, v_max, v_per, 1, null, null,
        _sign_in_hit.tenant, look_only => _sign_in_hit.look_only);
end
$$;

comment on function pglimit._sign_in_hit(text, text, text, boolean) is
    'internal: looks at or counts an attempt at one of the limits of sign-ins';

revoke all on function pglimit._sign_in_hit(text, text, text, boolean) from public;
