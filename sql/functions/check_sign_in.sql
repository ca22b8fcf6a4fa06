-- Says, before a password is looked at, whether to look: from the failures of this account from
-- this source, of this source, and of this account, each with a limit of its own. Of these the
-- account's is the one that strangers can use up, so it does not count for a source that has signed
-- in to the account before (see known_sign_ins), nor does the source's, which neighbours share.
-- A delay comes before a refusal: from the second failure of the pair on, doubling, and of a second
-- once half of what the source or the account has is used. It does not depend on whether there is
-- such an account, as failures count for those that do not exist as well.
-- Writes and locks nothing: what is being tried is counted by sign_in_failed. So attempts that run
-- at the same moment may pass together, as many as the service lets run.
create or replace function pglimit.check_sign_in(
    account text,
    source text,
    tenant text default null
)
returns pglimit.sign_in_row
language plpgsql
volatile
parallel unsafe
called on null input
security definer
set search_path = pg_catalog, pg_temp
set row_security = on
set lock_timeout = '1s'
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    v_tenant text := coalesce(check_sign_in.tenant, current_setting('pglimit.tenant', true), '');
    v_keys record;
    v_known boolean;
    v_pair pglimit.hit_row;
    v_source pglimit.hit_row;
    v_account pglimit.hit_row;
    v_failures bigint;
    v_delay interval := interval '0 s';
    v_reason text := 'allowed';
begin
    perform pglimit._check_standby('check_sign_in');
    perform pglimit._check_names('limit', 'sign_in_account', null, null, v_tenant);
    v_keys := pglimit._sign_in_keys(check_sign_in.account, check_sign_in.source);
    v_known := exists (
        select
        from pglimit.known_sign_ins k
        where k.tenant = v_tenant
            and k.pair = v_keys.pair
            and k.seen_at > clock_timestamp() - interval '90 days');
    v_pair := pglimit._sign_in_hit('sign_in_pair', v_keys.pair, v_tenant, true);
    v_source := pglimit._sign_in_hit('sign_in_source', v_keys.source_key, v_tenant, true);
    v_account := pglimit._sign_in_hit('sign_in_account', v_keys.account_key, v_tenant, true);
    if not v_pair.allowed then
        return row('refuse', '0 s', 'pair', v_pair.retry_after)::pglimit.sign_in_row;
    elsif not v_source.allowed and not v_known then
        return row('refuse', '0 s', 'source', v_source.retry_after)::pglimit.sign_in_row;
    elsif not v_account.allowed and not v_known then
        return row('refuse', '0 s', 'account', v_account.retry_after)::pglimit.sign_in_row;
    end if;
    if not v_known and v_account.remaining <= v_account.quota / 2 then
        v_delay := '1 s';
        v_reason := 'account';
    end if;
    if not v_known and v_source.remaining <= v_source.quota / 2 then
        v_delay := '1 s';
        v_reason := 'source';
    end if;
    v_failures := v_pair.quota - v_pair.remaining;
    if v_failures >= 2 and interval '250 ms' * power(2, least(v_failures - 2, 4)) >= v_delay then
        v_delay := interval '250 ms' * power(2, least(v_failures - 2, 4));
        v_reason := 'pair';
    end if;
    return row(
        case when v_delay > '0 s' then 'delay' else 'allow' end, v_delay, v_reason, null
    )::pglimit.sign_in_row;
end
$$;

comment on function pglimit.check_sign_in(text, text, text) is
    'Says before a password is looked at whether to: verdict allow, delay (wait for that long '
    'first) or refuse (with what a wait helps), from the failures of this account from this source '
    'and of each alone. PGL01 invalid argument, PGL03 on a standby.';

revoke all on function pglimit.check_sign_in(text, text, text) from public;
