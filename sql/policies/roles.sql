-- The roles. They belong to the whole server, not to one database: they may be there already, and
-- the installer of another database may be creating them at this moment. Both are fine here.
-- Not in install.sql: roles must exist before the first table, and whoever re-applies code need not
-- be allowed to create any.
do $$
declare
    v_role record;
begin
    for v_role in
        select w.name, w.about
        from (values
            ('pglimit_system', 'owns every object of pglimit; a member passes every policy'),
            ('pglimit_app', 'may claim, renew and release permits and count hits'),
            ('pglimit_operator', 'may inspect, change limits, release permits and purge'),
            ('pglimit_monitor', 'may inspect')
        ) as w (name, about)
        where not exists (select from pg_catalog.pg_roles r where r.rolname = w.name)
    loop
        begin
            execute format('create role %I nologin', v_role.name);
            execute format('comment on role %I is %L', v_role.name, 'pglimit: ' || v_role.about);
        exception
            when duplicate_object or unique_violation then
                null;   -- somebody else was faster
            when internal_error then
                -- Shared catalogs report a lost race this way, without an SQLSTATE of its own.
                if sqlerrm not like 'tuple concurrently %' then
                    raise;
                end if;
        end;
    end loop;
end
$$;
