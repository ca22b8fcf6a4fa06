-- What an endpoint's row says of a claim beside its caps: mode, fairness and whether a ticket may
-- wait, and the override of the holder that is valid now. Called for rows marked as special only.
-- Writes and locks nothing.
create or replace function pglimit._claim_rule(
    tenant text,
    endpoint text,
    holder text,
    out mode text,
    out fair boolean,
    out holder_cap bigint,
    out limit_version bigint,
    out somebody_waits boolean
)
returns record
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_overridden boolean;
begin
    select e.mode, e.fair, e.overridden
    into mode, fair, v_overridden
    from pglimit.endpoints e
    where e.tenant in (_claim_rule.tenant, '') and e.endpoint = _claim_rule.endpoint
    order by e.tenant desc
    limit 1;
    if fair then
        select p.ends_at > clock_timestamp() into somebody_waits
        from pglimit.permits p
        where p.pool = _claim_rule.tenant || e'\x1f\x1fq' || _claim_rule.endpoint and p.lane = 0
        order by p.turn desc
        limit 1;
    end if;
    if v_overridden then
        select o.holder_cap, o.limit_version
        into holder_cap, limit_version
        from pglimit.endpoint_overrides o
        where o.tenant = _claim_rule.tenant
            and o.endpoint = _claim_rule.endpoint
            and o.holder = _claim_rule.holder
            and o.valid_from <= clock_timestamp()
            and o.valid_until > clock_timestamp();
    end if;
end
$$;

comment on function pglimit._claim_rule(text, text, text) is
    'internal: mode, fairness and the holder''s override of a claim at a special endpoint';

revoke all on function pglimit._claim_rule(text, text, text) from public;
