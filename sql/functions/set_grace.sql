-- Sets how long after a crash permits that were live before it can be reasserted, while room is
-- kept for them. Room that is kept already stays so for as long as it was. At most a day: claims do
-- not get that room meanwhile. Writes: installation, limit_versions, changes.
-- Locks: the installation's row.
create or replace function pglimit.set_grace(grace interval)
returns interval
language plpgsql
volatile
parallel unsafe
called on null input
security definer
set search_path = pg_catalog, pg_temp
set row_security = on
set lock_timeout = '1s'
set intervalstyle = postgres
as $$
#variable_conflict use_column
declare
    v_before interval;
    v_grace interval := interval '0 s';
begin
    if current_setting('transaction_read_only') <> 'off' then
        perform pglimit._check_transaction('set_grace');
    end if;
    if (set_grace.grace between interval '0 s' and interval '1 day') is not true then
        raise exception using
            errcode = 'PGL01',
            message = format('grace of %s is out of range',
                coalesce(set_grace.grace::text, 'null')),
            detail = 'grace must be 0 or more, and at most 1 day.',
            hint = 'Pass an interval: grace => ''30 s''; 0 keeps no room and refuses every '
                || 'reassertion.';
    end if;
    -- 0 is fine here, and not to _fixed_interval
    if set_grace.grace <> interval '0 s' then
        v_grace := pglimit._fixed_interval('grace', set_grace.grace);
    end if;
    select i.grace into v_before from pglimit.installation i where i.singleton for update;
    update pglimit.installation i set grace = v_grace where i.singleton;
    perform pglimit._record_change(
        'set_grace', '', '',
        jsonb_build_object('grace', v_before),
        jsonb_build_object('grace', v_grace));
    return v_before;
end
$$;

comment on function pglimit.set_grace(interval) is
    'Sets how long after a crash its permits can be reasserted. Returns the time before. '
    'PGL01 invalid argument, PGL03 read-only or standby.';

revoke all on function pglimit.set_grace(interval) from public;
