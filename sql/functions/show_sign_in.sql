-- Shows whoever helps a user what check_sign_in goes by, and under which hashes it is counted:
-- those who may call this may not call that, and cannot make the hashes themselves. Writes and
-- locks nothing. The three looks are one after the other, as those of check_sign_in.
create or replace function pglimit.show_sign_in(
    account text,
    source text,
    tenant text default null
)
returns setof pglimit.sign_in_state_row
language plpgsql
volatile
parallel unsafe
called on null input
security definer
rows 3
set search_path = pg_catalog, pg_temp
set row_security = on
set lock_timeout = '1s'
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    v_tenant text := coalesce(show_sign_in.tenant, current_setting('pglimit.tenant', true), '');
    v_keys record;
    v_look pglimit.hit_row;
    v_row pglimit.sign_in_state_row;
begin
    perform pglimit._check_standby('show_sign_in');
    perform pglimit._check_names('limit', 'sign_in_account', null, null, v_tenant);
    v_keys := pglimit._sign_in_keys(show_sign_in.account, show_sign_in.source);
    v_row.known := exists (
        select
        from pglimit.known_sign_ins k
        where k.tenant = v_tenant
            and k.pair = v_keys.pair
            and k.seen_at > clock_timestamp() - interval '90 days');
    for v_row.limit_name, v_row.subject in
        select *
        from (values
            ('sign_in_account', v_keys.account_key),
            ('sign_in_source', v_keys.source_key),
            ('sign_in_pair', v_keys.pair)) as n (limit_name, subject)
    loop
        v_look := pglimit._sign_in_hit(v_row.limit_name, v_row.subject, v_tenant, true);
        v_row.used := v_look.quota - v_look.remaining;
        v_row.quota := v_look.quota;
        v_row.remaining := v_look.remaining;
        v_row.retry_after := v_look.retry_after;
        v_row.reset_at := v_look.reset_at;
        return next v_row;
    end loop;
end
$$;

comment on function pglimit.show_sign_in(text, text, text) is
    'Shows what check_sign_in goes by: what is used of the limits of the account, of the source '
    'and of the two together, under which subjects, and whether the two are known. '
    'PGL01 invalid argument, PGL03 on a standby.';

revoke all on function pglimit.show_sign_in(text, text, text) from public;
