-- Closes a step: back to the role from before enter.sql, and the membership goes if it came there.
do $$
begin
    execute format(
        'set local role %s',
        case current_setting('pglimit.installer_role')
            when 'none' then 'none'
            else quote_ident(current_setting('pglimit.installer_role'))
        end
    );
    if current_setting('pglimit.installer_granted') = 'yes' then
        revoke pglimit_system from current_user;
    end if;
end
$$;
