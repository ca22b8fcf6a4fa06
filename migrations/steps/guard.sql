-- Refuses to go back: while a deploy rolls, old and new programs start side by side, and the old ones
-- must not undo what the new ones installed.
do $$
declare
    v_schema int;
    v_code text;
begin
    select v.version
    into v_schema
    from pglimit.schema_version v;
    -- Only what this installer knows: there is no such table before the first migration, and a newer
    -- schema may have it in another shape. Dynamic, so that it is not looked up then.
    if v_schema between 1 and @schema_version@ then
        execute 'select i.code_version from pglimit.installation i' into v_code;
    end if;
    if v_schema > @schema_version@
        or string_to_array(substring(v_code from '^\d+\.\d+\.\d+'), '.')::int[]
            > string_to_array('@code_version@', '.')::int[]
    then
        raise exception using
            errcode = 'PGL04',
            message = format(
                'a newer pglimit is installed: %sschema version %s, this installer has %s, %s',
                v_code || ', ', v_schema, '@code_version@', @schema_version@
            ),
            detail = 'Older code would take away what newer clients rely on.',
            hint = 'Older clients work with newer code: there is nothing to do for them. '
                || 'To change the installation use its own version of the installer, or a newer one.';
    end if;
end
$$;
