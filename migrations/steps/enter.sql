-- Opens a step of the installer: everything after it in the transaction runs as pglimit_system, which
-- so comes to own what it makes. leave.sql undoes it.
--
-- The installer must be a member of pglimit_system for that, and a member passes every policy. So the
-- membership is granted here and revoked by leave.sql in the same transaction: nobody else ever sees
-- it, and a crash takes it back. Who is a member already stays one (a second installer could not
-- grant it anyway: 42501).
do $$
declare
    v_owner text;
    v_modern bool := current_setting('server_version_num')::int >= 160000;
begin
    perform set_config('pglimit.installer_role', current_setting('role'), true);
    perform set_config('pglimit.installer_granted', 'no', true);
    if not pg_has_role(current_user, 'pglimit_system', case when v_modern then 'SET' else 'MEMBER' end)
    then
        execute 'grant pglimit_system to current_user'
            || case when v_modern then ' with inherit false, set true' else '' end;
        perform set_config('pglimit.installer_granted', 'yes', true);
    end if;

    -- Made by the installer, who may create in this database, and handed over at once.
    select n.nspowner::regrole::text
    into v_owner
    from pg_namespace n
    where n.nspname = 'pglimit';
    if v_owner is null then
        create schema pglimit authorization pglimit_system;
    elsif v_owner <> 'pglimit_system' then
        raise exception using
            errcode = 'PGL04',
            message = format('schema pglimit exists and belongs to %s', v_owner),
            detail = 'pglimit installs into a schema of that name, owned by pglimit_system.',
            hint = 'Rename or drop that schema; if it was made for pglimit: '
                || 'alter schema pglimit owner to pglimit_system';
    end if;
end
$$;
set local role pglimit_system;
do $$
begin
    if not exists (
        select
        from pg_class c
        where c.relnamespace = 'pglimit'::regnamespace
            and c.relname = 'schema_version'
    ) then
        create table pglimit.schema_version (version int4 not null primary key);
    end if;
    -- A restored schema-only dump has the table without its row, but with the seal that tells what
    -- the row was.
    if not exists (select from pglimit.schema_version) then
        insert into pglimit.schema_version (version)
        values (coalesce((substring(
            obj_description('pglimit.schema_version'::regclass, 'pg_class') from '\{.*\}'
        )::jsonb ->> 'schema_version')::int, 0));
    end if;
end
$$;
