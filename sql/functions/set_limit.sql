-- Creates or replaces a limit; the next call of hit goes by it. Counts that were used stay used.
-- Writes: limits, limit_versions. Locks: the limit's row.
create or replace function pglimit.set_limit(
    limit_name text,
    max_hits bigint,
    per interval,
    algorithm text default 'fixed_window',
    burst bigint default null,
    durable boolean default false,
    mode text default 'enforce',
    on_outage text default 'allow',
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
as $$
#variable_conflict use_column
declare
    v_tenant text := coalesce(set_limit.tenant, current_setting('pglimit.tenant', true), '');
    v_per interval;
    v_version bigint;
begin
    if current_setting('transaction_read_only') <> 'off' then
        perform pglimit._check_transaction('set_limit');
    end if;
    perform pglimit._check_hit(
        set_limit.limit_name, 'any', set_limit.max_hits, set_limit.per, 1,
        coalesce(set_limit.algorithm, 'null'), set_limit.burst, v_tenant);
    if set_limit.max_hits is null then
        raise exception using
            errcode = 'PGL01',
            message = 'max_hits is null',
            detail = 'A limit is a number of hits per interval.',
            hint = 'Pass max_hits => 10; 0 refuses everything.';
    end if;
    if set_limit.durable is distinct from false then
        raise exception using
            errcode = 'PGL01',
            message = 'durable limits are not served by this version',
            detail = 'This version of pglimit counts in unlogged tables, which a crash empties.',
            hint = 'Leave durable out.';
    end if;
    perform pglimit._check_rule(set_limit.mode, set_limit.on_outage);
    v_per := pglimit._fixed_interval('per', set_limit.per);
    insert into pglimit.limits as l (
        tenant, limit_name, max_hits, per, algorithm, burst, durable, mode, on_outage,
        limit_version, updated_at, updated_by)
    values (
        v_tenant, set_limit.limit_name, set_limit.max_hits, v_per, set_limit.algorithm,
        set_limit.burst, set_limit.durable, set_limit.mode, set_limit.on_outage,
        nextval('pglimit.limit_versions'), clock_timestamp(), session_user)
    on conflict on constraint limits_pkey do update set
        max_hits = excluded.max_hits,
        per = excluded.per,
        algorithm = excluded.algorithm,
        burst = excluded.burst,
        durable = excluded.durable,
        mode = excluded.mode,
        on_outage = excluded.on_outage,
        -- whoever drew a later one may have been here first
        limit_version = case
            when excluded.limit_version > l.limit_version then excluded.limit_version
            else nextval('pglimit.limit_versions')
        end,
        updated_at = clock_timestamp(),
        updated_by = excluded.updated_by
    returning l.limit_version into v_version;
    return v_version;
end
$$;

comment on function pglimit.set_limit(
    text, bigint, interval, text, bigint, boolean, text, text, text) is
    'Creates or replaces the limit of this name. Returns its new limit_version. '
    'PGL01 invalid argument, PGL03 read-only or standby.';

revoke all on function pglimit.set_limit(
    text, bigint, interval, text, bigint, boolean, text, text, text) from public;
