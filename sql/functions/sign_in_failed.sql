-- Counts a failed sign-in at the limits of the pair, the source and the account; for accounts that
-- do not exist as well, so that nobody learns which do. What is full counts no more. Writes:
-- counters, or durable_counters (three rows). Locks: first, in the order of their numbers, the
-- creation locks of those keys that have no counter, or may have none soon; then the counters of
-- pair, source, account. Nobody who holds one of these counters waits for an earlier one, and who
-- makes counters holds all creation locks before.
create or replace function pglimit.sign_in_failed(
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
    v_tenant text := coalesce(sign_in_failed.tenant, current_setting('pglimit.tenant', true), '');
    v_keys record;
    v_new text;
begin
    if current_setting('transaction_isolation') <> 'read committed'
        or current_setting('transaction_read_only') <> 'off'
        or pg_current_xact_id_if_assigned() is not null
    then
        perform pglimit._check_transaction('sign_in_failed');
    end if;
    perform pglimit._check_names('limit', 'sign_in_account', null, null, v_tenant);
    v_keys := pglimit._sign_in_keys(sign_in_failed.account, sign_in_failed.source);
    for v_new in
        select n.key
        from (values
            ('sign_in_pair', format(e'%s\x1fsign_in_pair\x1f%s', v_tenant, v_keys.pair)),
            ('sign_in_source', format(e'%s\x1fsign_in_source\x1f%s', v_tenant, v_keys.source_key)),
            (
                'sign_in_account',
                format(e'%s\x1fsign_in_account\x1f%s', v_tenant, v_keys.account_key)
            )
        ) as n (limit_name, key)
        left join lateral (
            select r.durable
            from pglimit.limits r
            where r.tenant in (v_tenant, '') and r.limit_name = n.limit_name
            order by r.tenant desc
            limit 1
        ) l on true
        -- not by exists, which would read the dead turns before the newest
        left join lateral (
            select coalesce(r.reset_at, r.special_reset_at) as until
            from pglimit.counters r
            where r.key = n.key
            order by r.turn desc
            limit 1
        ) c on true
        left join lateral (
            select coalesce(r.reset_at, r.special_reset_at) as until
            from pglimit.durable_counters r
            where r.key = n.key
            order by r.turn desc
            limit 1
        ) d on true
        -- purge may take a counter that has ended away while this waits for the others, 1 s each
        where (
            case when l.durable then d.until else c.until end
                > clock_timestamp() + interval '3 s'
        ) is not true
        order by hashtextextended(n.key, 0) & 16383
    loop
        perform pglimit._lock_creation(0, v_new);
    end loop;
    perform pglimit._sign_in_hit('sign_in_pair', v_keys.pair, v_tenant, false);
    perform pglimit._sign_in_hit('sign_in_source', v_keys.source_key, v_tenant, false);
    perform pglimit._sign_in_hit('sign_in_account', v_keys.account_key, v_tenant, false);
end
$$;

comment on function pglimit.sign_in_failed(text, text, text) is
    'Counts a failed sign-in of an account, whether or not there is one, from a source. '
    'PGL01 invalid argument, PGL03 wrong transaction, 55P03 after 1 s of waiting.';

revoke all on function pglimit.sign_in_failed(text, text, text) from public;
