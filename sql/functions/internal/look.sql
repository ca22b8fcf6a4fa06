-- What a hit of `cost` would be answered now; the limit is already looked up and checked, and so is
-- its mode. That is null where the call brings its own limit: then it is looked up where the hit
-- would be refused. The same decisions as in _hit_special. Writes and locks nothing.
create or replace function pglimit._look(
    tenant text,
    limit_name text,
    subject text,
    max_hits bigint,
    cost bigint,
    on_outage text,
    limit_version bigint,
    mode text
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
    v_mode text := _look.mode;
    v_quota bigint := _look.max_hits;
    v_version bigint := _look.limit_version;
    v_override bigint;
    v_override_version bigint;
    v_valid boolean;
    v_now timestamptz;
    v_used bigint;
    v_reset timestamptz;
    v_stamped boolean;
    v_refused boolean;
begin
    select c.used, coalesce(c.reset_at, c.special_reset_at), c.reset_at is null
    into v_used, v_reset, v_stamped
    from pglimit.counters c
    where c.key = _look.tenant || e'\x1f' || _look.limit_name || e'\x1f' || _look.subject
    order by c.turn desc
    limit 1;
    v_now := clock_timestamp();
    if coalesce(v_stamped, true) then
        select o.max_hits, o.limit_version, coalesce(o.valid_from <= v_now, true)
        into v_override, v_override_version, v_valid
        from pglimit.limit_overrides o
        where o.tenant = _look.tenant
            and o.limit_name = _look.limit_name
            and o.subject = _look.subject
            and coalesce(o.valid_until > v_now, true);
        if v_valid then
            v_quota := v_override;
            v_version := v_override_version;
        end if;
    end if;
    if v_reset is null or v_reset <= v_now then
        v_used := 0;
        v_reset := null;
    end if;
    v_refused := cost > v_quota - v_used;
    if v_refused and v_mode is null then
        select l.mode
        into v_mode
        from pglimit.limits l
        where l.tenant in (_look.tenant, '') and l.limit_name = _look.limit_name
        order by l.tenant desc
        limit 1;
    end if;
    if v_mode = 'off' then
        return row(
            true, 'off', v_quota, v_quota, null, null, on_outage, v_version)::pglimit.hit_row;
    end if;
    return row(
        not v_refused or coalesce(v_mode = 'shadow', false),
        case
            when not v_refused then 'allowed'
            when v_mode = 'shadow' then 'shadow'
            when cost > v_quota then 'never'
            else 'limit'
        end,
        v_quota,
        greatest(v_quota - v_used, 0),
        case when v_refused and cost <= v_quota then v_reset - v_now end,
        v_reset,
        on_outage,
        v_version)::pglimit.hit_row;
end
$$;

comment on function pglimit._look(text, text, text, bigint, bigint, text, bigint, text) is
    'internal: what a hit would be answered now, without recording it';

revoke all on function pglimit._look(text, text, text, bigint, bigint, text, bigint, text)
    from public;
