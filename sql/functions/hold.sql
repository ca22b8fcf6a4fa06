-- Charges an estimate, as hit would, and keeps it as a hold, which settle corrects when it is known
-- what it was. A hold that is not settled within ttl has lapsed: it stays charged, or, where the
-- limit's row says on_lapse => 'return', purge gives it back. Where nothing is counted (mode off,
-- or let by in mode shadow) hold_id is 0, and settling that changes nothing.
-- Writes: a counter, as _hit_special, which does it all; holds or, of a durable limit,
-- durable_holds. Locks: as _hit_special. The hold is written under the counter's lock and before
-- anybody knows its number, so nobody can be in its way. A refusal writes and draws nothing.
create or replace function pglimit.hold(
    limit_name text,
    subject text,
    estimate bigint,
    ttl interval,
    max_hits bigint default null,
    per interval default null,
    algorithm text default null,
    burst bigint default null,
    tenant text default null
)
returns pglimit.hold_row
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
    v_tenant text := coalesce(hold.tenant, current_setting('pglimit.tenant', true), '');
    v_row pglimit.hit_row;
    v_ttl interval;
    v_expires timestamptz;
begin
    if (
        current_setting('transaction_isolation') = 'read committed'
        and current_setting('transaction_read_only') = 'off'
        and pg_current_xact_id_if_assigned() is null
    ) is not true then
        perform pglimit._check_transaction('hold');
    end if;
    perform pglimit._check_hit(
        hold.limit_name, hold.subject, hold.max_hits, hold.per, 1, hold.algorithm, hold.burst,
        v_tenant);
    if hold.estimate is null or hold.estimate < 1 then
        raise exception using
            errcode = 'PGL01',
            message = format('estimate of %s is out of range',
                coalesce(hold.estimate::text, 'null')),
            detail = 'A hold charges 1 or more.',
            hint = 'Where nothing is known before, call pglimit.charge afterwards.';
    end if;
    v_ttl := pglimit._fixed_interval('ttl', hold.ttl);
    if not exists (select from pglimit.sentinel s where s.singleton) then
        -- who begins an epoch needs it, and a block of every limit has it while it wants counters
        lock table pglimit.creation_locks in row share mode;
    end if;
    v_row := pglimit._hit_special(
        hold.limit_name, hold.subject, hold.max_hits, hold.per, hold.estimate, hold.algorithm,
        hold.burst, v_tenant, hold_for => v_ttl);
    select coalesce(
        (select h.expires_at from pglimit.holds h where h.hold_id = v_row.charged),
        (select h.expires_at from pglimit.durable_holds h where h.hold_id = v_row.charged))
    into v_expires
    where v_row.charged > 0;
    return row(
        v_row.allowed,
        case v_row.reason when 'allowed' then 'held' else v_row.reason end,
        case when v_row.allowed then v_row.charged end,
        v_row.remaining,
        v_row.retry_after,
        v_expires)::pglimit.hold_row;
end
$$;

comment on function pglimit.hold(
    text, text, bigint, interval, bigint, interval, text, bigint, text) is
    'Charges an estimate that settle corrects. One row; a refusal is a row with held = false and '
    'writes nothing. PGL01 invalid argument, PGL02 unknown limit, PGL03 wrong transaction, '
    '55P03 after 1 s of waiting.';

revoke all on function pglimit.hold(
    text, text, bigint, interval, bigint, interval, text, bigint, text) from public;
