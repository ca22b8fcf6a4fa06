-- Settings and state of the installation. A loss that nobody has begun a new epoch for counts as
-- one already. Writes and locks nothing.
create or replace function pglimit.show_installation()
returns pglimit.installation_row
language plpgsql
volatile
parallel unsafe
called on null input
security definer
set search_path = pg_catalog, pg_temp
set row_security = on
set lock_timeout = '1s'
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
begin
    perform pglimit._check_standby('show_installation');
    return (
        select row(
            i.installation_cap,
            (select f.in_use from pglimit._find_lanes(e'\x1f\x1f', i.installation_cap, 1) f),
            coalesce((select s.epoch from pglimit.sentinel s where s.singleton), i.epoch),
            i.epoch_since,
            i.purge_after,
            (select g.last_purge_at from pglimit.purge_progress g),
            pglimit.pglimit_version(),
            i.installed_at,
            i.lost_at,
            i.losses + case
                when i.epoch > 0 and not exists (select from pglimit.sentinel s where s.singleton)
                    then 1
                else 0
            end,
            i.live_known,
            i.grace,
            (select cardinality(f.tids) from pglimit._find_reserve() f))::pglimit.installation_row
        from pglimit.installation i);
end
$$;

comment on function pglimit.show_installation() is
    'Settings and state of the installation: cap and slots in use, epoch, purge, version, losses. '
    'One row. PGL03 on a standby.';

revoke all on function pglimit.show_installation() from public;
