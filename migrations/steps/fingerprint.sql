        -- One row per object of the schema: its name as people know it, and a hash of all that makes
        -- it what it is. Reads catalogs only, so any login may run it. Names depend on search_path,
        -- which must be pg_catalog alone.
        select o.object, left(encode(sha256(convert_to(o.definition, 'UTF8')), 'hex'), 16) as hash
        from pg_namespace n
        cross join lateral (
            select
                'schema pglimit' as object,
                concat_ws(E'\n', n.nspowner::regrole, (
                    select string_agg(a::text, ' ' order by a::text collate "C")
                    from unnest(coalesce(n.nspacl, acldefault('n', n.nspowner))) a
                ), obj_description(n.oid, 'pg_namespace')) as definition
            union all
            select
                format('%s %s', case p.prokind
                    when 'a' then 'aggregate' when 'p' then 'procedure' else 'function'
                end, p.oid::regprocedure),
                concat_ws(E'\n', p.proowner::regrole, (
                    select string_agg(a::text, ' ' order by a::text collate "C")
                    from unnest(coalesce(p.proacl, acldefault('f', p.proowner))) a
                ), case p.prokind when 'a' then p.prosrc else pg_get_functiondef(p.oid) end,
                obj_description(p.oid, 'pg_proc'))
            from pg_proc p
            where p.pronamespace = n.oid
            union all
            select
                format('%s %s', case c.relkind
                    when 'S' then 'sequence' when 'v' then 'view' when 'm' then 'materialized view'
                    when 'c' then 'type' when 'f' then 'foreign table' else 'table'
                end, c.oid::regclass),
                concat_ws(E'\n', c.relkind, c.relpersistence, c.relowner::regrole,
                c.relrowsecurity, c.relforcerowsecurity, c.reloptions, (
                    select string_agg(a::text, ' ' order by a::text collate "C")
                    from unnest(coalesce(c.relacl, acldefault(
                        case c.relkind when 'S' then 's'::"char" else 'r'::"char" end, c.relowner
                    ))) a
                ), (
                    select string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod),
                        a.attnotnull, a.attidentity, a.attgenerated, a.attstorage, a.attcollation::regcollation,
                        a.attacl, a.attoptions, pg_get_expr(d.adbin, d.adrelid),
                        col_description(a.attrelid, a.attnum)), E'\n' order by a.attnum)
                    from pg_attribute a
                    left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
                    where a.attrelid = c.oid
                        and a.attnum > 0
                        and not a.attisdropped
                ), (
                    select concat_ws(' ', s.seqtypid::regtype, s.seqstart, s.seqincrement, s.seqmax,
                        s.seqmin, s.seqcache, s.seqcycle)
                    from pg_sequence s
                    where s.seqrelid = c.oid
                ), case when c.relkind in ('v', 'm') then pg_get_viewdef(c.oid) end,
                case
                    when c.relkind = 'c' then obj_description(c.reltype, 'pg_type')
                    -- The version table's comment holds this very fingerprint.
                    when c.relname <> 'schema_version' then obj_description(c.oid, 'pg_class')
                end)
            from pg_class c
            where c.relnamespace = n.oid
                and c.relkind not in ('i', 'I')
            union all
            select
                format('index %s', i.indexrelid::regclass),
                concat_ws(E'\n', pg_get_indexdef(i.indexrelid), i.indisvalid, i.indisreplident,
                obj_description(i.indexrelid, 'pg_class'))
            from pg_class c
            join pg_index i on i.indexrelid = c.oid
            where c.relnamespace = n.oid
            union all
            select
                format('constraint %I on %s', t.conname, case t.conrelid
                    when 0 then t.contypid::regtype::text else t.conrelid::regclass::text
                end),
                concat_ws(E'\n', pg_get_constraintdef(t.oid), t.convalidated,
                obj_description(t.oid, 'pg_constraint'))
            from pg_constraint t
            where t.connamespace = n.oid
                and t.contype <> 'n'    -- 18 lists NOT NULL here too: the columns have it
            union all
            select
                format('policy %I on %s', y.polname, c.oid::regclass),
                concat_ws(E'\n', y.polcmd, y.polpermissive, (
                    select string_agg(r::regrole::text, ' ' order by r::regrole::text collate "C")
                    from unnest(y.polroles) r
                ), pg_get_expr(y.polqual, y.polrelid), pg_get_expr(y.polwithcheck, y.polrelid),
                obj_description(y.oid, 'pg_policy'))
            from pg_class c
            join pg_policy y on y.polrelid = c.oid
            where c.relnamespace = n.oid
            union all
            select
                format('trigger %I on %s', g.tgname, c.oid::regclass),
                concat_ws(E'\n', pg_get_triggerdef(g.oid), g.tgenabled)
            from pg_class c
            join pg_trigger g on g.tgrelid = c.oid
            where c.relnamespace = n.oid
                and not g.tgisinternal
            union all
            select
                format('rule %I on %s', u.rulename, c.oid::regclass),
                concat_ws(E'\n', pg_get_ruledef(u.oid), u.ev_enabled)
            from pg_class c
            join pg_rewrite u on u.ev_class = c.oid
            where c.relnamespace = n.oid
                and u.rulename <> '_RETURN'     -- the view itself
            union all
            select
                format('type %s', y.oid::regtype),
                concat_ws(E'\n', y.typtype, y.typowner::regrole, y.typacl, y.typnotnull, y.typdefault,
                format_type(nullif(y.typbasetype, 0), y.typtypmod), (
                    select string_agg(e.enumlabel, ' ' order by e.enumsortorder)
                    from pg_enum e
                    where e.enumtypid = y.oid
                ), obj_description(y.oid, 'pg_type'))
            from pg_type y
            where y.typnamespace = n.oid
                and y.typtype in ('d', 'e', 'r')    -- row types are above, and arrays come with both
        ) o
        where n.nspname = 'pglimit'
