-- The version of the installed code; the one place that states it. A bare version() would always be
-- PostgreSQL's own, whatever the search_path.
create or replace function pglimit.pglimit_version()
returns text
language sql
immutable
parallel safe
called on null input
security definer
set search_path = pg_catalog, pg_temp
as $$
select '0.1.0'
$$;

comment on function pglimit.pglimit_version() is
    'Version of the installed pglimit, as major.minor.patch.';

revoke all on function pglimit.pglimit_version() from public;
