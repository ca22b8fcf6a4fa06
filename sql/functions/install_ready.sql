-- Installs a ready row by its name, and leaves one that is there as it is: an operator may have
-- changed it. A new ready endpoint is a name in v_ready and a branch below, a new ready limit one
-- in _ready_limit, too. Writes: what set_endpoint or set_limit writes, when there is no row.
-- Locks: then the creation lock of the name, which set_endpoint has too, or the table limits,
-- against other changes and not against hits, so that a row that is made meanwhile is not
-- replaced.
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
    v_ready constant text[] := array[
        'login_attempt', 'password_reset_redeem', 'password_reset_request', 'request_in_flight',
        'sign_in_account', 'sign_in_pair', 'sign_in_source', 'upload_window'];
    v_tenant text := coalesce(install_ready.tenant, current_setting('pglimit.tenant', true), '');
    v_limit record;
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
    v_limit := pglimit._ready_limit(install_ready.name);
    if v_limit.max_hits is not null then
        perform pglimit._check_names('limit', install_ready.name, null, null, v_tenant);
        for v_attempt in 1..2 loop
            select l.limit_version
            into v_version
            from pglimit.limits l
            where l.tenant = v_tenant and l.limit_name = install_ready.name;
            if found then
                return v_version;
            end if;
            if v_attempt = 1 then
                lock table pglimit.limits in share row exclusive mode;
            end if;
        end loop;
        -- lockouts: nobody is to be locked out for an outage
        return pglimit.set_limit(
            install_ready.name, v_limit.max_hits, v_limit.per, on_outage => 'allow',
            tenant => v_tenant);
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
