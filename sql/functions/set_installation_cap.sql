-- Sets how many permits may be live at once over all tenants and endpoints.
-- Writes: installation, limit_versions, changes. Locks: the installation's row.
create or replace function pglimit.set_installation_cap(cap bigint)
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
    v_before bigint;
begin
    if current_setting('transaction_read_only') <> 'off' then
        perform pglimit._check_transaction('set_installation_cap');
    end if;
    if set_installation_cap.cap is null or set_installation_cap.cap < 0 then
        raise exception using
            errcode = 'PGL01',
            message = format('cap of %s is out of range',
                coalesce(set_installation_cap.cap::text, 'null')),
            detail = 'The installation cap is zero (closed) or more.',
            hint = 'A quarter of max_connections is a good start.';
    end if;
    select i.installation_cap
    into v_before
    from pglimit.installation i
    where i.singleton
    for update;
    update pglimit.installation i
    set installation_cap = set_installation_cap.cap
    where i.singleton;
    perform pglimit._record_change(
        'set_installation_cap', '', '',
        jsonb_build_object('installation_cap', v_before),
        jsonb_build_object('installation_cap', set_installation_cap.cap));
    return v_before;
end
$$;

comment on function pglimit.set_installation_cap(bigint) is
    'Sets the cap over all tenants and endpoints. Returns the one before. '
    'PGL01 invalid argument, PGL03 read-only or standby.';

revoke all on function pglimit.set_installation_cap(bigint) from public;
