-- Blocks a subject for longer each time: the first strike for base, each further one for factor
-- times as long, never for more than maximum. Strikes are forgotten once decay has passed since
-- the last block ended, by the decay of the strike that made it, for by that purge goes too. A
-- strike during a block counts nothing and does not lengthen it. It is a service's: no matter of
-- the history, and list_blocks shows it. Writes: blocks, counters (stamped). Locks: see
-- _lock_block, _apply_block; none during a block.
create or replace function pglimit.strike(
    limit_name text,
    subject text,
    base interval default '1 min',
    factor double precision default 2,
    maximum interval default '1 day',
    decay interval default '1 day',
    why text default null,
    tenant text default null
)
returns pglimit.strike_row
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
    v_tenant text := coalesce(strike.tenant, current_setting('pglimit.tenant', true), '');
    v_now timestamptz;
    v_row pglimit.blocks;
    v_base double precision;
    v_maximum double precision;
    v_seconds double precision;
begin
    if current_setting('transaction_isolation') <> 'read committed'
        or current_setting('transaction_read_only') <> 'off'
        or pg_current_xact_id_if_assigned() is not null
    then
        perform pglimit._check_transaction('strike');
    end if;
    perform pglimit._check_names('limit', strike.limit_name, 'subject', strike.subject, v_tenant);
    strike.base := pglimit._fixed_interval('base', strike.base);
    strike.maximum := pglimit._fixed_interval('maximum', strike.maximum);
    strike.decay := pglimit._fixed_interval('decay', strike.decay);
    if (strike.factor between 1 and 1000) is not true then
        raise exception using
            errcode = 'PGL01',
            message = format('factor of %s is out of range',
                coalesce(strike.factor::text, 'null')),
            detail = 'Each block in a row is so many times as long as the one before: 1 to 1,000.',
            hint = 'Pass factor => 2 to double, factor => 1 for blocks that are all as long.';
    end if;
    if strike.why is not null then
        perform pglimit._check_why(strike.why);
    end if;
    for v_attempt in 1..2 loop
        select b.*
        into v_row
        from pglimit.blocks b
        where b.tenant = v_tenant
            and b.limit_name = strike.limit_name
            and b.subject = strike.subject;
        v_now := clock_timestamp();
        if found and coalesce(v_row.blocked_until > v_now, true) then
            return row(
                v_row.strikes, v_row.blocked_until, v_row.blocked_until - v_now
            )::pglimit.strike_row;
        end if;
        if v_attempt = 1 then
            perform pglimit._lock_block(strike.limit_name, strike.subject, v_tenant);
        end if;
    end loop;
    if coalesce(v_row.forget_at <= v_now, true) then
        v_row.strikes := 0;
    end if;
    -- by logarithms first: the power itself may have no end
    v_base := extract(epoch from strike.base);
    v_maximum := extract(epoch from strike.maximum);
    v_seconds := v_maximum;
    if ln(v_base) + v_row.strikes * ln(strike.factor) < ln(v_maximum) then
        v_seconds := least(v_base * power(strike.factor, v_row.strikes), v_maximum);
    end if;
    v_row.strikes := v_row.strikes + 1;
    v_row.blocked_until := v_now + make_interval(secs => v_seconds);
    perform pglimit._apply_block(
        strike.limit_name, strike.subject, v_tenant, v_row.blocked_until,
        v_row.blocked_until + strike.decay, v_row.strikes, coalesce(strike.why, v_row.why),
        'strike');
    return row(
        v_row.strikes, v_row.blocked_until, v_row.blocked_until - v_now)::pglimit.strike_row;
end
$$;

comment on function pglimit.strike(
    text, text, interval, double precision, interval, interval, text, text) is
    'Blocks a subject for longer each time, until the strikes are forgotten. During a block it '
    'changes nothing. One row: strikes in a row, until when, and how long that is. '
    'PGL01 invalid argument, PGL03 wrong transaction, 55P03 after 1 s of waiting.';

revoke all on function pglimit.strike(
    text, text, interval, double precision, interval, interval, text, text) from public;
