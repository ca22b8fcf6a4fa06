-- Gives a holder bounds of his own at an endpoint, for a while or for good; the next claim goes by
-- them. They beat the endpoint's row and the arguments of a claim. Writes: endpoint_overrides,
-- endpoints (the mark that there are some), limit_versions, changes. Locks: the creation lock of
-- the endpoint's name, then the rows.
create or replace function pglimit.set_endpoint_override(
    endpoint text,
    holder text,
    holder_cap bigint default null,
    share bigint default 1,
    valid_from timestamptz default null,
    valid_until timestamptz default null,
    tenant text default null
)
returns bigint
language plpgsql
volatile
parallel unsafe
called on null input
security definer
set search_path = pg_catalog, pg_temp
set row_security = on
set lock_timeout = '1s'
set intervalstyle = postgres
set timezone = 'UTC'
as $$
#variable_conflict use_column
declare
    v_tenant text := coalesce(
        set_endpoint_override.tenant, current_setting('pglimit.tenant', true), '');
    v_from timestamptz;
    v_until timestamptz;
    v_before jsonb;
    v_after jsonb;
    v_version bigint;
begin
    if current_setting('transaction_read_only') <> 'off' then
        perform pglimit._check_transaction('set_endpoint_override');
    end if;
    perform pglimit._check_names(
        'endpoint', set_endpoint_override.endpoint, 'holder', set_endpoint_override.holder,
        v_tenant);
    if set_endpoint_override.holder_cap < 0 then
        raise exception using
            errcode = 'PGL01',
            message = format('a cap of %s is negative', set_endpoint_override.holder_cap),
            detail = 'A cap is zero (closed) or more.',
            hint = 'Pass 0 to refuse everything, or leave the cap out.';
    end if;
    if set_endpoint_override.share is null
        or set_endpoint_override.share not between 1 and 1000
    then
        raise exception using
            errcode = 'PGL01',
            message = format('share of %s is out of range',
                coalesce(set_endpoint_override.share::text, 'null')),
            detail = 'It is how many turns the holder''s tickets get for one of others, '
                || '1 to 1,000.',
            hint = 'Pass share => 2, or leave it out.';
    end if;
    select c.valid_from, c.valid_until
    into v_from, v_until
    from pglimit._check_validity(
        set_endpoint_override.valid_from, set_endpoint_override.valid_until) c;
    perform pglimit._lock_creation(5, set_endpoint_override.endpoint);
    update pglimit.endpoints e
    set overridden = true
    where e.tenant in (v_tenant, '') and e.endpoint = set_endpoint_override.endpoint;
    if not found then
        raise exception using
            errcode = 'PGL02',
            message = format('unknown endpoint %s', quote_literal(set_endpoint_override.endpoint)),
            detail = 'An override changes an endpoint that is set; claims of one that is not look '
                || 'for none.',
            hint = format(
                'Create it first: select pglimit.set_endpoint(%s, holder_cap => 2, '
                || 'time_bound => ''1 minute'');',
                quote_literal(set_endpoint_override.endpoint));
    end if;
    select to_jsonb(o)
    into v_before
    from pglimit.endpoint_overrides o
    where o.tenant = v_tenant
        and o.endpoint = set_endpoint_override.endpoint
        and o.holder = set_endpoint_override.holder;
    v_version := nextval('pglimit.limit_versions');
    insert into pglimit.endpoint_overrides as o (
        tenant, endpoint, holder, holder_cap, share, valid_from, valid_until, limit_version,
        updated_at, updated_by)
    values (
        v_tenant, set_endpoint_override.endpoint, set_endpoint_override.holder,
        set_endpoint_override.holder_cap, set_endpoint_override.share, v_from, v_until,
        v_version, clock_timestamp(), session_user)
    on conflict on constraint endpoint_overrides_pkey do update
    set holder_cap = excluded.holder_cap,
        share = excluded.share,
        valid_from = excluded.valid_from,
        valid_until = excluded.valid_until,
        limit_version = excluded.limit_version,
        updated_at = excluded.updated_at,
        updated_by = excluded.updated_by
    returning to_jsonb(o) into v_after;
    perform pglimit._record_change(
        'set_endpoint_override', v_tenant, set_endpoint_override.endpoint, v_before, v_after,
        version => v_version);
    return v_version;
end
$$;

comment on function pglimit.set_endpoint_override(
    text, text, bigint, bigint, timestamptz, timestamptz, text) is
    'Gives a holder bounds of his own at an endpoint that is set. Returns the limit_version. '
    'PGL01 invalid argument, PGL02 unknown endpoint, PGL03 read-only or standby.';

revoke all on function pglimit.set_endpoint_override(
    text, text, bigint, bigint, timestamptz, timestamptz, text) from public;
