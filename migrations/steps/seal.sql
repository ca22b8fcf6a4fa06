-- Records what was just installed, in the transaction that installed it: in the installation's row
-- for SQL, and with a fingerprint of every object as the comment of the version table. Comments are
-- catalog entries, so any login can compare them with the catalog (`limitctl schema status`), and a
-- start-up check needs neither privileges nor a membership.
do $seal$
declare
    v_objects jsonb;
begin
    update pglimit.installation
    set code_version = '@code_version@', code_hash = '@code_hash@';
    if not found then
        raise exception using
            errcode = 'PGL04',
            message = 'pglimit.installation has no row',
            detail = 'A restored schema-only dump looks like that.',
            hint = 'Start afresh: limitctl schema drop, then limitctl schema up';
    end if;

    select jsonb_object_agg(f.object, f.hash)
    into v_objects
    from (
@fingerprint@
    ) f;
    execute format(
        'comment on table pglimit.schema_version is %L',
        'Version of the tables. Below, what the installer put here, to tell later what has changed '
            || 'since: ' || jsonb_build_object(
            'code_hash', '@code_hash@',
            'code_version', '@code_version@',
            'format', @format@,
            'objects', v_objects,
            'schema_version', @schema_version@,
            'server', current_setting('server_version_num')::int / 10000
        )
    );
end
$seal$;
