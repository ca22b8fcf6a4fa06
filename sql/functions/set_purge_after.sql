-- Sets how long a pool or counter must have been idle before purge removes it.
-- Writes: installation. Locks: its row.
create or replace function pglimit.set_purge_after(idle interval)
returns interval
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
    v_before interval;
    v_idle interval := interval '0 s';
begin
    if current_setting('transaction_read_only') <> 'off' then
        perform pglimit._check_transaction('set_purge_after');
    end if;
    -- 0 is fine here, and not to _fixed_interval.
    if set_purge_after.idle is null or set_purge_after.idle < interval '0 s' then
        raise exception using
            errcode = 'PGL01',
            message = format('idle of %s is out of range',
                coalesce(set_purge_after.idle::text, 'null')),
            detail = 'idle must be 0 or more, and at most 36525 days.',
            hint = 'Pass an interval: idle => ''1 day''; 0 has purge remove all that is over.';
    end if;
    if set_purge_after.idle <> interval '0 s' then
        v_idle := pglimit._fixed_interval('idle', set_purge_after.idle);
    end if;
    select i.purge_after into v_before from pglimit.installation i where i.singleton for update;
    update pglimit.installation i set purge_after = v_idle where i.singleton;
    return v_before;
end
$$;

comment on function pglimit.set_purge_after(interval) is
    'Sets the idle time after which purge removes a pool or counter. Returns the one before. '
    'PGL01 invalid argument, PGL03 read-only or standby.';

revoke all on function pglimit.set_purge_after(interval) from public;
