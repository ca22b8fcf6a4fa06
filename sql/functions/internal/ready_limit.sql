-- What a ready limit is: the one place that says so, for install_ready and for check_sign_in, which
-- also works without the rows. Null for another name. Writes and locks nothing.
create or replace function pglimit._ready_limit(
    name text,
    out max_hits bigint,
    out per interval
)
returns record
language plpgsql
immutable
parallel safe
called on null input
security invoker
as $$
begin
    case _ready_limit.name
        when 'login_attempt' then max_hits := 5; per := '15 min';
        when 'password_reset_redeem' then max_hits := 5; per := '1 hour';
        when 'password_reset_request' then max_hits := 3; per := '1 hour';
        -- failures from one source for one account, from one source, and for one account
        when 'sign_in_pair' then max_hits := 5; per := '15 min';
        when 'sign_in_source' then max_hits := 20; per := '15 min';
        when 'sign_in_account' then max_hits := 100; per := '15 min';
        when 'upload_window' then max_hits := 10; per := '1 hour';
        else null;
    end case;
end
$$;

comment on function pglimit._ready_limit(text) is
    'internal: what a ready limit is; null for another name';

revoke all on function pglimit._ready_limit(text) from public;
