-- Gives an account its attempts back, for whoever helps a user who is locked out; with a source
-- also those of the two together and those of the source, which neighbours share. Makes nobody
-- known.
-- It is recorded by hashes: the history names no account, as the counters do not.
-- Writes: counters or durable_counters (of pair, source, account, where they count something), and
-- when there was something limit_versions and changes. Locks: these rows, in this order, which is
-- that of sign_in_failed, so the two do not deadlock.
create or replace function pglimit.forget_sign_in(
    account text,
    source text default null,
    tenant text default null
)
returns boolean
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
    v_tenant text := coalesce(forget_sign_in.tenant, current_setting('pglimit.tenant', true), '');
    v_keys record;
    v_allowed text := current_setting('pglimit.in_transaction', true);
    v_before jsonb;
    v_forgotten boolean := false;
begin
    if current_setting('transaction_isolation') <> 'read committed'
        or current_setting('transaction_read_only') <> 'off'
        or pg_current_xact_id_if_assigned() is not null
    then
        perform pglimit._check_transaction('forget_sign_in');
    end if;
    perform pglimit._check_names('limit', 'sign_in_account', null, null, v_tenant);
    -- any address serves where only the account's hash is needed
    v_keys := pglimit._sign_in_keys(
        forget_sign_in.account, coalesce(forget_sign_in.source, '0.0.0.0'));
    v_before := jsonb_build_object('account', v_keys.account_key);
    -- forget warns in a transaction that has written, as this one may have after the first
    perform set_config('pglimit.in_transaction', 'allow', true);
    if forget_sign_in.source is not null then
        v_before := v_before
            || jsonb_build_object('pair', v_keys.pair, 'source', v_keys.source_key);
        v_forgotten := pglimit.forget('sign_in_pair', v_keys.pair, v_tenant);
        v_forgotten := pglimit.forget('sign_in_source', v_keys.source_key, v_tenant) or v_forgotten;
    end if;
    v_forgotten := pglimit.forget('sign_in_account', v_keys.account_key, v_tenant) or v_forgotten;
    perform set_config('pglimit.in_transaction', coalesce(v_allowed, ''), true);
    if v_forgotten then
        perform pglimit._record_change(
            'forget_sign_in', v_tenant, 'sign_in_account', v_before, null);
    end if;
    return v_forgotten;
end
$$;

comment on function pglimit.forget_sign_in(text, text, text) is
    'Gives an account its sign-in attempts back, and with a source those of the two together and '
    'of the source. True when something was counted. '
    'PGL01 invalid argument, PGL03 wrong transaction, 55P03 after 1 s of waiting.';

revoke all on function pglimit.forget_sign_in(text, text, text) from public;
