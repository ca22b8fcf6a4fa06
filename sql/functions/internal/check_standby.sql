-- Lists and looks work in read-only transactions, but unlogged tables cannot be read on a standby:
-- this names the reason before the server's own message would. Writes and locks nothing.
create or replace function pglimit._check_standby(function_name text)
returns void
language plpgsql
stable
parallel unsafe
called on null input
security invoker
as $$
begin
    if pg_is_in_recovery() then
        perform pglimit._check_transaction(function_name);
    end if;
end
$$;

comment on function pglimit._check_standby(text) is
    'internal: raises PGL03 on a standby';

revoke all on function pglimit._check_standby(text) from public;
