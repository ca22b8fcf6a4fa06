-- Gives hits back to a subject, of those that are counted now: never more than the present window
-- has, or than a bucket lacks. What was counted in a window that is over, or of a sliding window in
-- the one before, is not given back. A cost of 0 looks. Returns what remains, 0 while in debt.
-- Writes, locks and is safe as _hit_special, which does it; where nothing is counted it writes
-- nothing.
create or replace function pglimit.refund(
    limit_name text,
    subject text,
    cost bigint,
    tenant text default null,
    max_hits bigint default null,
    per interval default null,
    algorithm text default null,
    burst bigint default null
)
returns bigint
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
    v_tenant text := coalesce(refund.tenant, current_setting('pglimit.tenant', true), '');
    v_row pglimit.hit_row;
begin
    if (
        current_setting('transaction_isolation') = 'read committed'
        and current_setting('transaction_read_only') = 'off'
        and pg_current_xact_id_if_assigned() is null
    ) is not true then
        perform pglimit._check_transaction('refund');
    end if;
    perform pglimit._check_hit(
        refund.limit_name, refund.subject, refund.max_hits, refund.per, refund.cost,
        refund.algorithm, refund.burst, v_tenant);
    v_row := pglimit._hit_special(
        refund.limit_name, refund.subject, refund.max_hits, refund.per, -refund.cost,
        refund.algorithm, refund.burst, v_tenant, look_only => refund.cost = 0, forced => true);
    return greatest(v_row.remaining, 0);
end
$$;

comment on function pglimit.refund(text, text, bigint, text, bigint, interval, text, bigint) is
    'Gives hits of the present window back to a subject, never above the quota. Returns what '
    'remains. PGL01 invalid argument, PGL02 unknown limit, PGL03 wrong transaction, '
    '55P03 after 1 s of waiting.';

revoke all on function pglimit.refund(text, text, bigint, text, bigint, interval, text, bigint)
    from public;
