-- Says why a deciding function cannot run in the present transaction, or warns that it should not.
-- PGL01 when the setting that chooses between the two is misspelt: a warning would be a guess.
-- Called only when the entry point's cheap test has failed. Writes and locks nothing.
create or replace function pglimit._check_transaction(function_name text)
returns void
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
begin
    if pg_is_in_recovery() then
        raise exception using
            errcode = 'PGL03',
            message = format('%s was called on a standby', function_name),
            detail = 'A standby cannot write, and unlogged tables cannot be read on it.',
            hint = 'Connect to the primary, for example with target_session_attrs=read-write.';
    end if;
    if current_setting('transaction_read_only') <> 'off' then
        raise exception using
            errcode = 'PGL03',
            message = format('%s was called in a read-only transaction', function_name),
            detail = 'It writes, so its transaction must be read write.',
            hint = 'Run it as a statement of its own, or after "begin read write".'
                || case function_name
                    when 'hit' then ' To look without writing, call pglimit.peek.'
                    else ''
                end;
    end if;
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception using
            errcode = 'PGL03',
            message = format(
                '%s was called at isolation level %s',
                function_name,
                current_setting('transaction_isolation')),
            detail = 'It must see what others commit while it waits; a retry would never end.',
            hint = 'Run it as a statement of its own, '
                || 'or after "begin isolation level read committed".';
    end if;
    if pg_current_xact_id_if_assigned() is not null then
        case coalesce(nullif(current_setting('pglimit.in_transaction', true), ''), 'warn')
            when 'allow' then
                null;
            when 'error' then
                raise exception using
                    errcode = 'PGL03',
                    message = format(
                        '%s was called in a transaction that has already written', function_name),
                    detail = 'Its count would roll back with that transaction, '
                        || 'and its row lock would last until the commit.',
                    hint = 'Call it on a connection of its own, '
                        || 'or set pglimit.in_transaction = allow.';
            when 'warn' then
                raise warning using
                    errcode = '01000',
                    message = format(
                        '%s was called in a transaction that has already written', function_name),
                    detail = 'Its count rolls back with this transaction, '
                        || 'and its row lock lasts until the commit.',
                    hint = 'Call it on a connection of its own, '
                        || 'or say that it is meant: set local pglimit.in_transaction = allow';
            else
                raise exception using
                    errcode = 'PGL01',
                    message = format('pglimit.in_transaction is %s',
                        quote_literal(current_setting('pglimit.in_transaction'))),
                    detail = 'It says what a call does in a transaction that has already written, '
                        || 'and is one of warn, error and allow.',
                    hint = 'Correct it: set pglimit.in_transaction = warn; where it is set for '
                        || 'the login: alter role ... reset pglimit.in_transaction.';
        end case;
    end if;
end
$$;

comment on function pglimit._check_transaction(text) is
    'internal: raises an error or a warning where a decision cannot or should not run';

revoke all on function pglimit._check_transaction(text) from public;
