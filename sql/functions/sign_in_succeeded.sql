-- Notes a sign-in that succeeded: forgets the failures of the pair and of the account, not those of
-- the source, or whoever has an account could guess at others' for ever; and knows the pair for the
-- next 90 days. Writes: counters (of pair and account, where they count something), known_sign_ins
-- (once a day). Locks: these rows, in this order.
create or replace function pglimit.sign_in_succeeded(
    account text,
    source text,
    tenant text default null
)
returns void
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
    v_tenant text := coalesce(
        sign_in_succeeded.tenant, current_setting('pglimit.tenant', true), '');
    v_keys record;
    v_allowed text := current_setting('pglimit.in_transaction', true);
begin
    if current_setting('transaction_isolation') <> 'read committed'
        or current_setting('transaction_read_only') <> 'off'
        or pg_current_xact_id_if_assigned() is not null
    then
        perform pglimit._check_transaction('sign_in_succeeded');
    end if;
    perform pglimit._check_names('limit', 'sign_in_account', null, null, v_tenant);
    v_keys := pglimit._sign_in_keys(sign_in_succeeded.account, sign_in_succeeded.source);
    -- forget warns in a transaction that has written, as this one has after the first
    perform set_config('pglimit.in_transaction', 'allow', true);
    perform pglimit.forget('sign_in_pair', v_keys.pair, v_tenant);
    perform pglimit.forget('sign_in_account', v_keys.account_key, v_tenant);
    perform set_config('pglimit.in_transaction', coalesce(v_allowed, ''), true);
    insert into pglimit.known_sign_ins as k (tenant, pair, seen_at)
    values (v_tenant, v_keys.pair, clock_timestamp())
    on conflict on constraint known_sign_ins_pkey do update
    set seen_at = excluded.seen_at
    where k.seen_at < excluded.seen_at - interval '1 day';
end
$$;

comment on function pglimit.sign_in_succeeded(text, text, text) is
    'Notes a sign-in that succeeded: forgets the failures of the account, and of it from this '
    'source, and knows the two together for 90 days. '
    'PGL01 invalid argument, PGL03 wrong transaction, 55P03 after 1 s of waiting.';

revoke all on function pglimit.sign_in_succeeded(text, text, text) from public;
