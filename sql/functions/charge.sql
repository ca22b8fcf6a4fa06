-- Records what was used already, whether or not it was left: the count goes into debt, as far as
-- max_debt below nothing; null is no bound. While there is debt every hit is refused. Debt is part
-- of what is counted and goes as that goes: with its window, or by leaking. A cost of 0 looks.
-- A sum above the greatest bigint stays there.
-- Writes, locks and is safe as _hit_special, which decides it; a refusal writes nothing.
create or replace function pglimit.charge(
    limit_name text,
    subject text,
    cost bigint,
    max_debt bigint default null,
    tenant text default null,
    max_hits bigint default null,
    per interval default null,
    algorithm text default null,
    burst bigint default null
)
returns pglimit.charge_row
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
    v_tenant text := coalesce(charge.tenant, current_setting('pglimit.tenant', true), '');
    v_row pglimit.hit_row;
begin
    if (
        current_setting('transaction_isolation') = 'read committed'
        and current_setting('transaction_read_only') = 'off'
        and pg_current_xact_id_if_assigned() is null
    ) is not true then
        perform pglimit._check_transaction('charge');
    end if;
    perform pglimit._check_hit(
        charge.limit_name, charge.subject, charge.max_hits, charge.per, charge.cost,
        charge.algorithm, charge.burst, v_tenant);
    if charge.max_debt < 0 then
        raise exception using
            errcode = 'PGL01',
            message = format('max_debt of %s is negative', charge.max_debt),
            detail = 'It is how far below nothing the count may go.',
            hint = 'Pass max_debt => 0 for no debt, or leave it out for no bound.';
    end if;
    v_row := pglimit._hit_special(
        charge.limit_name, charge.subject, charge.max_hits, charge.per, charge.cost,
        charge.algorithm, charge.burst, v_tenant, look_only => charge.cost = 0, forced => true,
        max_debt => charge.max_debt);
    return row(
        v_row.allowed,
        case v_row.reason when 'allowed' then 'charged' when 'limit' then 'debt' else v_row.reason
        end,
        greatest(v_row.remaining, 0),
        greatest(-v_row.remaining, 0),
        v_row.reset_at)::pglimit.charge_row;
end
$$;

comment on function pglimit.charge(
    text, text, bigint, bigint, text, bigint, interval, text, bigint) is
    'Records a cost whatever is left, down to max_debt below nothing. One row; a refusal is a row '
    'with charged = false and writes nothing. '
    'PGL01 invalid argument, PGL02 unknown limit, PGL03 wrong transaction, '
    '55P03 after 1 s of waiting.';

revoke all on function pglimit.charge(
    text, text, bigint, bigint, text, bigint, interval, text, bigint) from public;
