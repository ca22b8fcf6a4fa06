-- Installs a ready row by its name, and leaves one that is there as it is: an operator may have
-- changed it. A new ready row is a name in v_ready and a branch below.
-- Writes: what set_endpoint writes, when there is no row. Locks: then the creation lock of the
-- name, which set_endpoint has too, so that a row that is made meanwhile is not replaced.
create or replace function pglimit.install_ready(
    name text,
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
    v_ready constant text[] := array['request_in_flight'];
    v_tenant text := coalesce(install_ready.tenant, current_setting('pglimit.tenant', true), '');
    v_version bigint;
begin
    if current_setting('transaction_read_only') <> 'off' then
        perform pglimit._check_transaction('install_ready');
    end if;
    if install_ready.name is null or install_ready.name <> all (v_ready) then
        raise exception using
            errcode = 'PGL01',
            message = format('no ready row is named %s',
                coalesce(quote_literal(install_ready.name), 'null')),
            detail = 'pglimit brings rows for common purposes, each under a fixed name.',
            hint = format('These are ready: %s. Make any other with set_endpoint or set_limit.',
                array_to_string(v_ready, ', '));
    end if;
    perform pglimit._check_names('endpoint', install_ready.name, null, null, v_tenant);
    for v_attempt in 1..2 loop
        select e.limit_version
        into v_version
        from pglimit.endpoints e
        where e.tenant = v_tenant and e.endpoint = install_ready.name;
        if found then
            return v_version;
        end if;
        if v_attempt = 1 then
            perform pglimit._lock_creation(5, install_ready.name);
        end if;
    end loop;
    if install_ready.name = 'request_in_flight' then
        -- requests of one token at once; a stolen token cannot take all there is
        v_version := pglimit.set_endpoint(
            install_ready.name,
            holder_cap => 10,
            time_bound => '30 s',
            in_installation => false,
            on_outage => 'allow',
            tenant => v_tenant);
    end if;
    return v_version;
end
$$;

comment on function pglimit.install_ready(text, text) is
    'Installs the ready row of this name, unless there is one. Returns its limit_version. '
    'PGL01 invalid argument, PGL03 read-only or standby.';

revoke all on function pglimit.install_ready(text, text) from public;
