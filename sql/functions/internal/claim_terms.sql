-- What a claim without a ticket is decided by: its caps, its lease and what the endpoint's row
-- says, as in claim_permit. Where the mode is off, nothing but that. Writes and locks nothing.
create or replace function pglimit._claim_terms(
    tenant text,
    endpoint text,
    holder text,
    holder_cap bigint,
    endpoint_cap bigint,
    installation_cap bigint,
    lease interval,
    out caps bigint[],
    out length interval,
    out longest interval,
    out time_bound interval,
    out row_cap bigint,
    out on_outage text,
    out limit_version bigint,
    out mode text,
    out fair boolean
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
    v_row pglimit.endpoints;
begin
    select e.* into v_row
    from pglimit.endpoints e
    where e.tenant in (_claim_terms.tenant, '') and e.endpoint = _claim_terms.endpoint
    order by e.tenant desc
    limit 1;
    if v_row.in_installation and _claim_terms.installation_cap is null then
        select i.installation_cap into _claim_terms.installation_cap
        from pglimit.installation i
        where i.singleton;
    end if;
    longest := v_row.longest;
    time_bound := v_row.time_bound;
    row_cap := v_row.row_cap;
    on_outage := v_row.on_outage;
    limit_version := v_row.limit_version;
    mode := 'enforce';
    fair := false;
    if v_row.special then
        select
            r.mode,
            r.fair,
            coalesce(r.holder_cap, _claim_terms.holder_cap),
            coalesce(r.limit_version, v_row.limit_version)
        into mode, fair, _claim_terms.holder_cap, limit_version
        from pglimit._claim_rule(
            _claim_terms.tenant, _claim_terms.endpoint, _claim_terms.holder) r;
        if mode = 'off' then
            length := _claim_terms.lease;
            return;
        end if;
    end if;
    caps := array[
        coalesce(_claim_terms.holder_cap, v_row.holder_cap),
        coalesce(_claim_terms.endpoint_cap, v_row.endpoint_cap),
        _claim_terms.installation_cap];
    if num_nonnulls(variadic caps) = 0 then
        perform pglimit._unknown_endpoint(_claim_terms.endpoint);
    end if;
    length := coalesce(_claim_terms.lease, time_bound + interval '30 s');
    if length is null then
        perform pglimit._no_lease(_claim_terms.endpoint);
    end if;
    length := pglimit._fixed_interval('lease', length);
end
$$;

comment on function pglimit._claim_terms(
    text, text, text, bigint, bigint, bigint, interval) is
    'internal: the caps, the lease and the rule that a claim is decided by';

revoke all on function pglimit._claim_terms(
    text, text, text, bigint, bigint, bigint, interval) from public;
