-- Makes a table system-only: row-level security enabled and forced, one policy, no grant to anyone
-- else. A sequence has only the grants. Touches nothing that is already so: creating a policy takes
-- ACCESS EXCLUSIVE, and behind a pg_dump that would stop every hit.
-- Writes: the catalog, where it differs. Locks: the relation, then only.
create or replace function pglimit._secure_relation(relation regclass)
returns void
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
declare
    v_class pg_class;
    v_policy text;
    v_grantee record;
    v_other record;
begin
    select c.* into v_class from pg_class c where c.oid = relation;
    for v_grantee in
        select distinct x.grantee
        from aclexplode(v_class.relacl) x
        where x.grantee <> v_class.relowner
        union
        select distinct x.grantee
        from pg_attribute a
        cross join aclexplode(a.attacl) x
        where a.attrelid = relation and x.grantee <> v_class.relowner
    loop
        execute format(
            'revoke all on %s %s from %s cascade',
            case v_class.relkind when 'S' then 'sequence' else 'table' end,
            relation,
            case when v_grantee.grantee = 0 then 'public'
                else v_grantee.grantee::regrole::text end);
    end loop;
    if v_class.relkind = 'S' then
        return;
    end if;

    if not v_class.relrowsecurity then
        execute format('alter table %s enable row level security', relation);
    end if;
    if not v_class.relforcerowsecurity then
        execute format('alter table %s force row level security', relation);
    end if;
    v_policy := v_class.relname || '_system_only';
    for v_other in
        select p.polname
        from pg_policy p
        where p.polrelid = relation
            and (
                p.polname <> v_policy
                or p.polcmd <> '*'
                or not p.polpermissive
                or p.polroles <> array['pglimit_system'::regrole::oid]
                or pg_get_expr(p.polqual, p.polrelid) is distinct from 'true'
                or pg_get_expr(p.polwithcheck, p.polrelid) is distinct from 'true'
            )
    loop
        execute format('drop policy %I on %s', v_other.polname, relation);
    end loop;
    if not exists (
        select from pg_policy p where p.polrelid = relation and p.polname = v_policy
    ) then
        execute format(
            'create policy %I on %s as permissive for all to pglimit_system '
            || 'using (true) with check (true)',
            v_policy, relation);
    end if;
end
$$;

comment on function pglimit._secure_relation(regclass) is
    'internal: makes a table or sequence system-only, touching only what differs';

revoke all on function pglimit._secure_relation(regclass) from public;
