-- Checks this database: a row for each check that found nothing, and one for each finding of the
-- others. `held_for` is how long a transaction must have held locks here to be in the way, and
-- `snapshot_for` a snapshot to be named.
-- The one public function that runs as its caller: what a login sees of other sessions is its own
-- right (pg_monitor), and a definer would see nothing of them. So it reads catalogs, views that are
-- open to all, and calls what its caller may call. A check that cannot be made is a row like any
-- other, so each call of something that may be broken has a handler of its own.
-- Writes nothing. Locks: what the catalogs' and the called functions' reads lock, for a second at
-- most each; nothing that stops a hit or a claim.
-- A new check is a statement below under a name of its own; a new function of pglimit is a name in
-- the list of `functions`.
create or replace function pglimit.doctor(
    held_for interval default '5 s',
    snapshot_for interval default '1 hour'
)
returns setof pglimit.doctor_row
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
rows 20
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
#variable_conflict use_column
declare
    v_reapply constant text := 'limitctl schema up --reapply puts functions, policies and grants '
        'back, as the login that installed them.';
    v_cap bigint;
    v_epoch_since timestamptz;
    v_in_use bigint;
    v_last_purge timestamptz;
    v_late boolean;
    v_losses bigint;
    v_lost_at timestamptz;
    v_purge_after interval;
    v_used boolean;
    v_sees_all boolean := pg_has_role('pg_read_all_stats', 'usage');
begin
    if doctor.held_for is null or doctor.held_for < '0 s'
        or doctor.snapshot_for is null or doctor.snapshot_for < '0 s'
    then
        raise exception using
            errcode = 'PGL01',
            message = format('held_for of %s and snapshot_for of %s are out of range',
                coalesce(doctor.held_for::text, 'null'),
                coalesce(doctor.snapshot_for::text, 'null')),
            detail = 'They are how long locks, or a snapshot, must have been held to be reported.',
            hint = 'Leave them out, or pass held_for => ''1 minute'', snapshot_for => ''1 day''.';
    end if;
    if pg_is_in_recovery() then
        return query values (
            'server', 'ok',
            'this is a standby: counters and permits are on the primary, nothing is checked here',
            'Ask on the primary.');
        return;
    end if;
    return query values (
        'server', 'ok', 'a primary, PostgreSQL ' || current_setting('server_version'), null::text);

    -- objects: what the installer noted in the comment on schema_version is there
    begin
        return query
        with sealed as (
            select o.name
            from jsonb_object_keys(
                substring(
                    obj_description('pglimit.schema_version'::regclass, 'pg_class')
                    from '\{.*')::jsonb -> 'objects') o (name)
            where split_part(o.name, ' ', 1) in ('function', 'sequence', 'table')
        ), missing as (
            select s.name
            from sealed s
            where case split_part(s.name, ' ', 1)
                when 'function' then to_regprocedure(substr(s.name, 10)) is null
                else to_regclass(split_part(s.name, ' ', 2)) is null
            end
            order by s.name
        )
        select
            'objects', 'failure', m.name || ' is missing: calls that need it fail',
            case
                when m.name like 'function %' then v_reapply
                else 'Restore it from a backup, or begin anew: limitctl schema drop, then '
                    'limitctl schema up.'
            end
        from missing m
        union all
        select
            'objects',
            case when count(*) > 0 then 'ok' else 'warning' end,
            case
                when count(*) > 0
                then format('all %s tables, sequences and functions are there', count(*))
                else 'the installer''s record of its objects is missing'
            end,
            case when count(*) = 0 then v_reapply end
        from sealed
        having not exists (select from missing);
    exception when others then
        return query values (
            'objects', 'warning', 'the installer''s record of its objects cannot be read: '
                || sqlerrm, v_reapply);
    end;

    -- functions: who may call them, and whose rights they run with
    return query
    with listed as (
        select unnest(l.names) as name, l.roles
        from (values
            ('{pglimit_app}'::text[],
                '{admit, charge, check_sign_in, claim_permit, enqueue_permit, heartbeat_replica,
                hit, hit_many, hit_up_to, hold, poll_ticket, reassert_permit, refund, renew_permit,
                settle, sign_in_failed, sign_in_succeeded, strike}'::text[]),
            ('{pglimit_app, pglimit_operator}', '{forget, pause, release_permit}'),
            ('{pglimit_app, pglimit_operator, pglimit_monitor}', '{peek, pglimit_version}'),
            ('{pglimit_operator, pglimit_monitor}',
                '{doctor, explain_limit, list_blocks, list_changes, list_counters,
                list_endpoint_overrides,
                list_endpoints, list_holds, list_limit_overrides, list_limits, list_permits,
                show_installation, show_sign_in}'),
            ('{pglimit_operator}',
                '{block, block_range, drop_endpoint, drop_endpoint_override, drop_limit,
                drop_limit_override, force_release, forget_sign_in, install_ready, purge,
                raise_epoch, release_holder, set_endpoint, set_endpoint_override, set_grace,
                set_installation_cap, set_limit, set_limit_override, set_purge_after, simulate,
                unblock, unblock_range}')
        ) as l (roles, names)
    ), needed as (
        select distinct unnest(l.roles) as name from listed l
    ), found as (
        select p.oid, p.oid::regprocedure as signature, p.proname, p.proowner, p.prosecdef, p.proacl
        from pg_proc p
        where p.pronamespace = 'pglimit'::regnamespace
    ), findings as (
        select
            'failure' as state,
            format('role %s is missing', n.name) as message,
            'limitctl schema up makes it, as a login with CREATEROLE.' as hint
        from needed n
        where not exists (select from pg_roles r where r.rolname = n.name)
        union all
        select
            'failure', r.rolname || ' may not use the schema pglimit: every call of it fails',
            v_reapply
        from needed n
        join pg_roles r on r.rolname = n.name
        where not has_schema_privilege(r.oid, 'pglimit', 'usage')
        union all
        select
            'failure', format('%s may not call %s: every call fails', r.rolname, f.signature),
            v_reapply
        from found f
        join listed l on l.name = f.proname
        join pg_roles r on r.rolname = any (l.roles)
        where not has_function_privilege(r.oid, f.oid, 'execute')
        union all
        select
            'failure', format('%s runs with the rights of %s', f.signature,
                case when f.prosecdef then f.proowner::regrole::text else 'its caller' end),
            v_reapply
        from found f
        where f.proname !~ '^_'
            and (f.proowner::regrole::text <> 'pglimit_system'
                or f.prosecdef = (f.proname = 'doctor'))
        union all
        select
            case when x.grantee = 0 then 'failure' else 'warning' end,
            format('%s may call %s',
                case when x.grantee = 0 then 'everybody (PUBLIC)'
                    else x.grantee::regrole::text end,
                f.signature),
            format('revoke all on function %s from %s;', f.signature,
                case when x.grantee = 0 then 'public' else x.grantee::regrole::text end)
        from found f
        cross join aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) x
        left join listed l on l.name = f.proname
        where x.grantee <> f.proowner
            and (x.grantee = 0
                or (x.grantee::regrole::text = any (l.roles)) is not true)
        union all
        select
            'warning', format('%s is not part of pglimit', f.signature),
            format('drop function %s;', f.signature)
        from found f
        where f.proname !~ '^_' and not exists (select from listed l where l.name = f.proname)
    )
    (
        select 'functions', f.state, f.message, f.hint
        from findings f
        order by f.state, f.message
        limit 20
    )
    union all
    select 'functions', 'ok', 'every role may call what is meant for it, and nobody else may', null
    where not exists (select from findings);

    -- row_security: the tables are closed to all but pglimit_system
    begin
        return query
        with tables as (
            select c.oid, c.relname, c.relowner, c.relacl, c.relkind,
                c.relrowsecurity and c.relforcerowsecurity and (
                    select count(*) = 1 and bool_and(
                        p.polroles::regrole[]::text[] = '{pglimit_system}'
                        and p.polcmd = '*'
                        and pg_get_expr(p.polqual, p.polrelid) = 'true'
                        and pg_get_expr(p.polwithcheck, p.polrelid) = 'true')
                    from pg_policy p
                    where p.polrelid = c.oid) as secured
            from pg_class c
            where c.relnamespace = 'pglimit'::regnamespace
                and (c.relkind = 'S' or c.relkind in ('r', 'p') and c.relname <> 'schema_version')
        ), findings as (
            select
                'failure' as state,
                format('row-level security of pglimit.%s is not enabled, forced and for '
                    'pglimit_system alone', t.relname) as message,
                v_reapply as hint
            from tables t
            where t.relkind <> 'S' and t.secured is not true
            union all
            select
                'failure',
                format('pglimit.%s belongs to %s: the functions cannot use it',
                    t.relname, t.relowner::regrole),
                format('alter table pglimit.%I owner to pglimit_system;', t.relname)
            from tables t
            where t.relowner::regrole::text <> 'pglimit_system'
            union all
            select
                'warning', format('%s has rights on pglimit.%s',
                    case when x.grantee = 0 then 'everybody (PUBLIC)'
                        else x.grantee::regrole::text end,
                    t.relname),
                v_reapply
            from tables t
            cross join lateral (
                select distinct a.grantee from aclexplode(t.relacl) a where a.grantee <> t.relowner
            ) x
        )
        (
            select 'row_security', f.state, f.message, f.hint
            from findings f
            order by f.state, f.message
            limit 20
        )
        union all
        select 'row_security', 'ok', 'enabled and forced on every table, and no right on any', null
        where not exists (select from findings);
    exception when others then
        return query values (
            'row_security', 'skipped', 'could not be checked: ' || sqlerrm,
            'Somebody locks a table of pglimit: see blockers and prepared.');
    end;

    -- installation: its one row, without which there is no cap over all endpoints
    begin
        select
            i.installation_cap, i.in_use, i.epoch_since, i.purge_after, i.last_purge_at, i.losses,
            i.lost_at
        into v_cap, v_in_use, v_epoch_since, v_purge_after, v_last_purge, v_losses, v_lost_at
        from pglimit.show_installation() i;
        if v_cap is null then
            return query values (
                'installation', 'failure',
                'pglimit.installation has no row: claims are granted without the cap over all '
                'endpoints',
                format('As a member of pglimit_system: set role pglimit_system; insert into '
                    'pglimit.installation (installation_cap) values (%s); then limitctl schema up '
                    '--reapply and select pglimit.raise_epoch();',
                    greatest(1, current_setting('max_connections')::bigint / 4)));
        elsif v_cap > current_setting('max_connections')::bigint then
            return query values (
                'installation', 'warning',
                format('the cap over all endpoints is %s, and there are %s connections: it bounds '
                    'nothing', v_cap, current_setting('max_connections')),
                format('select pglimit.set_installation_cap(%s);',
                    greatest(1, current_setting('max_connections')::bigint / 4)));
        else
            return query values (
                'installation', 'ok', format('%s of %s slots over all endpoints are in use',
                    v_in_use, v_cap), null::text);
        end if;
    exception when others then
        return query values (
            'installation', 'failure', 'show_installation fails: ' || sqlerrm, v_reapply);
    end;

    -- call: whether the functions answer at all
    begin
        perform pglimit.peek('pglimit.doctor', 'probe', max_hits => 1, per => '1 second');
        if current_setting('transaction_read_only') = 'off'
            and current_setting('transaction_isolation') = 'read committed'
            and pg_current_xact_id_if_assigned() is null
            and exists (
                select
                from pg_proc p
                where p.pronamespace = 'pglimit'::regnamespace
                    and p.proname = 'hit'
                    and has_function_privilege(p.oid, 'execute'))
        then
            -- at a cost of 0 it records nothing
            perform pglimit.hit(
                'pglimit.doctor', 'probe', max_hits => 1, per => '1 second', cost => 0);
            return query values ('call', 'ok', 'peek and hit answer', null::text);
        else
            return query values (
                'call', 'ok',
                'peek answers; hit was not called, which takes pglimit_app and a transaction that '
                'may write', null::text);
        end if;
    exception when others then
        return query values (
            'call', 'failure', format('a call fails: %s (SQLSTATE %s)', sqlerrm, sqlstate),
            case sqlstate
                when '55P03' then 'Somebody locks a table of pglimit: see blockers and prepared.'
                else v_reapply
            end);
    end;

    -- defaults: a transaction as a login usually gets it must be one that can decide
    return query
    with settings as (
        select
            case when s.setrole = 0 then '' else ' of ' || r.rolname end as whose,
            format('alter %s%s reset %s;',
                case
                    when s.setrole <> 0 then format('role %I', r.rolname)
                    when s.setdatabase = 0 then 'role all'
                    else 'database'
                end,
                case
                    when s.setdatabase = 0 then ''
                    when s.setrole = 0 then format(' %I', current_database())
                    else format(' in database %I', current_database())
                end,
                split_part(c.setting, '=', 1)) as hint,
            split_part(c.setting, '=', 1) as name,
            split_part(c.setting, '=', 2) as value
        from pg_db_role_setting s
        cross join unnest(s.setconfig) c (setting)
        left join pg_roles r on r.oid = s.setrole
        left join pg_roles a on a.rolname = 'pglimit_app'
        where (s.setdatabase = 0 or exists (
                select
                from pg_database d
                where d.oid = s.setdatabase and d.datname = current_database()))
            and (s.setrole = 0 or pg_has_role(s.setrole, a.oid, 'member') and not r.rolsuper)
        union all
        select
            ' of the server',
            format('alter system reset %s; select pg_reload_conf();', p.name),
            p.name,
            p.setting
        from pg_settings p
        where p.source in ('command line', 'configuration file')
    ), findings as (
        select
            format('%s%s is %s: calls fail with PGL03 unless they begin their transactions '
                'otherwise', s.name, s.whose, s.value) as message,
            s.hint
        from settings s
        where s.name = 'default_transaction_isolation' and s.value <> 'read committed'
            or s.name = 'default_transaction_read_only'
                and lower(s.value) not in ('off', 'false', 'no', '0')
    )
    (
        select 'defaults', 'warning', f.message, f.hint
        from findings f
        order by f.message
        limit 20
    )
    union all
    select 'defaults', 'ok', 'transactions begin as read committed and read write', null
    where not exists (select from findings);

    -- sentinel: when counters and permits were last lost. A loss that nobody has found yet counts
    -- in losses, and has no instant.
    v_late := v_losses > 0
        and coalesce(v_lost_at > clock_timestamp() - interval '1 day', true);
    return query values (
        'sentinel',
        case when v_late then 'warning' else 'ok' end,
        case
            when v_losses > 0
            then format('a crash or fail-over emptied counters and permits %s, losses in all: %s',
                coalesce('at ' || date_trunc('second', v_lost_at), 'since the last claim'),
                v_losses)
            when v_epoch_since is null then 'no permit was claimed yet'
            else format('the present epoch began at %s, and nothing was lost by a crash or '
                'fail-over', date_trunc('second', v_epoch_since))
        end,
        case
            when v_late
            then 'Look in the server''s log for what ended it. select * from '
                'pglimit.show_installation(); says how much room is kept (reserved).'
        end);

    -- purge: nothing schedules it
    begin
        v_used := coalesce(pg_relation_size(to_regclass('pglimit.counters')), 0) > 0
            or coalesce(pg_relation_size(to_regclass('pglimit.permits')), 0) > 0;
    exception when lock_not_available then
        v_used := true;   -- somebody rewrites it: there is something in it
    end;
    v_late := case
        when v_last_purge is null then v_used
        else v_last_purge < clock_timestamp() - interval '1 day'
    end;
    return query
    select
        'purge',
        case when v_late then 'warning' else 'ok' end,
        case
            when v_last_purge is not null then format('the last purge was at %s, and removed what '
                'was idle for %s', date_trunc('second', v_last_purge), v_purge_after)
            when v_used and v_losses > 0 then 'there was no purge since a crash or fail-over: '
                'every key used since keeps a row'
            when v_used then 'there was no purge yet: every key ever used keeps a row'
            else 'there was no purge yet, and there is nothing to purge'
        end,
        case
            when v_late
            then 'Every ten minutes, by cron: limitctl purge run --all; or select pglimit.purge();'
        end;

    -- roles: logins that policies do not bind
    return query
    with recursive granted as (
        -- since 16 a membership may be one in name only; before, there are no such columns
        select m.roleid, m.member
        from pg_auth_members m
        where coalesce((to_jsonb(m) ->> 'inherit_option')::boolean, true)
            or coalesce((to_jsonb(m) ->> 'set_option')::boolean, true)
    ), members as (
        select r.rolname as role, g.member
        from granted g
        join pg_roles r on r.oid = g.roleid
        where r.rolname in (
            'pglimit_system', 'pglimit_app', 'pglimit_operator', 'pglimit_monitor')
        union
        select m.role, g.member
        from members m
        join granted g on g.roleid = m.member
    ), findings as (
        select
            format('login %s is a member of pglimit_system and passes every policy', r.rolname)
                as message,
            format('revoke pglimit_system from %I;', r.rolname) as hint
        from members m
        join pg_roles r on r.oid = m.member
        where m.role = 'pglimit_system' and r.rolcanlogin
        union all
        select
            format('login %s, with %s, is a member of %s: no policy binds it, and tests made as it '
                'show no fault of rights', r.rolname,
                case when r.rolsuper then 'SUPERUSER' else 'BYPASSRLS' end,
                string_agg(m.role, ', ' order by m.role)),
            format('alter role %I %s; or give its service a login of its own', r.rolname,
                case when r.rolsuper then 'nosuperuser' else 'nobypassrls' end)
        from members m
        join pg_roles r on r.oid = m.member
        where m.role <> 'pglimit_system' and r.rolcanlogin and (r.rolsuper or r.rolbypassrls)
        group by r.rolname, r.rolsuper
    )
    (
        select 'roles', 'warning', f.message, f.hint
        from findings f
        order by f.message
        limit 20
    )
    union all
    select 'roles', 'ok', 'no login passes the policies', null
    where not exists (select from findings);

    -- blockers: transactions that hold what others wait for. Reading alone is in nobody's way.
    return query
    with holders as (
        select
            a.pid, a.usename, a.state, a.query, a.xact_start,
            string_agg(distinct c.relname, ', ' order by c.relname) as tables
        from pg_locks l
        join pg_class c on c.oid = l.relation
        join pg_stat_activity a on a.pid = l.pid
        where l.database = (select d.oid from pg_database d where d.datname = current_database())
            and c.relnamespace = 'pglimit'::regnamespace
            and c.relkind in ('r', 'p')
            and l.granted
            and l.mode not in ('AccessShareLock', 'ShareUpdateExclusiveLock')
            and a.pid <> pg_backend_pid()
        group by a.pid, a.usename, a.state, a.query, a.xact_start
    ), findings as (
        select h.*
        from holders h
        where h.xact_start < clock_timestamp() - doctor.held_for
        order by h.xact_start
        limit 20
    ), unseen as (
        select h.*
        from holders h
        where h.state is null
        order by h.pid
        limit 20
    )
    select
        'blockers', 'warning',
        format('session %s of %s holds locks on %s in a transaction of %s, %s: %s',
            f.pid, f.usename, f.tables, date_trunc('second', clock_timestamp() - f.xact_start),
            f.state, left(regexp_replace(f.query, '\s+', ' ', 'g'), 100)),
        format('select pg_terminate_backend(%s);', f.pid)
    from findings f
    union all
    select
        'blockers', 'skipped',
        'needs pg_monitor to tell for how long other sessions have held locks'
            || coalesce('; these hold some: ' || string_agg(format('%s (%s)', u.pid, u.usename),
                ', ' order by u.pid), ''),
        format('grant pg_monitor to %I;', session_user)
    from unseen u
    having not v_sees_all
    union all
    select 'blockers', 'ok', 'no transaction has held locks for longer than ' || doctor.held_for,
        null
    where v_sees_all and not exists (select from findings);

    -- prepared: a transaction that outlives its session, and a restart
    return query
    with findings as (
        select
            x.gid, x.owner, x.prepared,
            string_agg(distinct c.relname, ', ' order by c.relname) as tables
        from pg_prepared_xacts x
        -- its lock on its own number leads to the others; until a restart they bear the name that
        -- the session's had, which a later transaction of a session may have again
        join pg_locks n on n.pid is null and n.transactionid = x.transaction
        join pg_locks l on l.pid is null and l.virtualtransaction = n.virtualtransaction
        join pg_class c on c.oid = l.relation
        where x.database = current_database()
            and c.relnamespace = 'pglimit'::regnamespace
            and c.relkind in ('r', 'p')
            and l.mode <> 'AccessShareLock'
            and x.prepared < clock_timestamp() - doctor.held_for
        group by x.gid, x.owner, x.prepared
        order by x.prepared
        limit 20
    )
    select
        'prepared', 'warning',
        format('prepared transaction %L of %s has held locks on %s since %s', f.gid, f.owner,
            f.tables, date_trunc('second', f.prepared)),
        format('rollback prepared %L; as %I or a superuser, in this database', f.gid, f.owner)
    from findings f
    union all
    select 'prepared', 'ok', 'no prepared transaction has held locks for longer than '
        || doctor.held_for, null
    where not exists (select from findings);

    -- snapshots: pglimit stays as fast, but no vacuum removes what they may see
    return query
    with findings as (
        select
            a.xact_start as since,
            format('session %s of %s: a snapshot for %s', a.pid, a.usename,
                date_trunc('second', clock_timestamp() - a.xact_start)) as message,
            format('select pg_terminate_backend(%s);', a.pid) as hint
        from pg_stat_activity a
        where a.backend_xmin is not null
            and a.pid <> pg_backend_pid()
            and a.xact_start < clock_timestamp() - doctor.snapshot_for
        union all
        select
            x.prepared,
            format('prepared transaction %L: for %s', x.gid,
                date_trunc('second', clock_timestamp() - x.prepared)),
            format('rollback prepared %L; as %I or a superuser, in database %s', x.gid, x.owner,
                x.database)
        from pg_prepared_xacts x
        where x.prepared < clock_timestamp() - doctor.snapshot_for
        union all
        select
            null,
            format('replication slot %s, %s: for %s transactions', s.slot_name,
                case when s.active then 'in use' else 'not in use' end, age(s.xmin)),
            format('select pg_drop_replication_slot(%L); if nobody needs it', s.slot_name)
        from pg_replication_slots s
        where s.xmin is not null and (not s.active or age(s.xmin) > 1000000)
    )
    (
        select 'snapshots', 'ok', 'old rows are kept by ' || f.message, f.hint
        from findings f
        order by f.since
        limit 20
    )
    union all
    select
        'snapshots', 'skipped', 'needs pg_monitor to tell how old other sessions'' snapshots are',
        format('grant pg_monitor to %I;', session_user)
    where not v_sees_all
    union all
    select 'snapshots', 'ok', 'none has been held for longer than ' || doctor.snapshot_for, null
    where v_sees_all and not exists (select from findings);

    -- vacuum: whether somebody removes dead rows, and keeps up
    return query
    with findings as (
        select
            'autovacuum is off' as message,
            'alter system set autovacuum = on; alter system set track_counts = on; select '
                'pg_reload_conf();' as hint
        where current_setting('autovacuum') = 'off' or current_setting('track_counts') = 'off'
        union all
        select
            format('autovacuum is off for pglimit.%s', c.relname),
            format('alter table pglimit.%I reset (autovacuum_enabled);', c.relname)
        from pg_class c
        where c.relnamespace = 'pglimit'::regnamespace
            and exists (
                select
                from pg_options_to_table(c.reloptions) o
                where o.option_name = 'autovacuum_enabled' and not o.option_value::boolean)
        union all
        select
            format('pglimit.%s has %s dead rows beside %s live ones', s.relname, s.n_dead_tup,
                s.n_live_tup),
            format('vacuum pglimit.%I; if they stay, see snapshots', s.relname)
        from pg_stat_all_tables s
        where s.schemaname = 'pglimit'
            and s.n_dead_tup > 100000
            and s.n_dead_tup > 10 * s.n_live_tup
    )
    select 'vacuum', 'warning', f.message, f.hint
    from findings f
    union all
    select 'vacuum', 'ok', 'autovacuum is on and keeps up', null
    where not exists (select from findings);
end
$$;

comment on function pglimit.doctor(interval, interval) is
    'Checks this database: what is wrong, and what to type next. Rows, at least one a check, of '
    'state ok, warning, failure, or skipped for want of pg_monitor. PGL01 invalid argument.';

revoke all on function pglimit.doctor(interval, interval) from public;
