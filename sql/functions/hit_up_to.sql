-- A hit of as many as there is room for, of `wanted` and not less than `at_least`; `charged` says
-- how many. Refused, with how long to wait for at_least, where there is less. Writes, locks and is
-- safe as _hit_special, which decides it.
create or replace function pglimit.hit_up_to(
    limit_name text,
    subject text,
    wanted bigint,
    at_least bigint default 1,
    max_hits bigint default null,
    per interval default null,
    algorithm text default null,
    burst bigint default null,
    tenant text default null
)
returns pglimit.hit_row
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
    v_tenant text := coalesce(hit_up_to.tenant, current_setting('pglimit.tenant', true), '');
begin
    if (
        current_setting('transaction_isolation') = 'read committed'
        and current_setting('transaction_read_only') = 'off'
        and pg_current_xact_id_if_assigned() is null
    ) is not true then
        perform pglimit._check_transaction('hit_up_to');
    end if;
    perform pglimit._check_hit(
        hit_up_to.limit_name, hit_up_to.subject, hit_up_to.max_hits, hit_up_to.per, 1,
        hit_up_to.algorithm, hit_up_to.burst, v_tenant);
    if (hit_up_to.at_least between 1 and hit_up_to.wanted) is not true then
        raise exception using
            errcode = 'PGL01',
            message = format('at_least of %s of %s wanted is out of range',
                coalesce(hit_up_to.at_least::text, 'null'),
                coalesce(hit_up_to.wanted::text, 'null')),
            detail = 'What is taken is at least 1, and not more than is wanted.',
            hint = 'Pass wanted => 100, at_least => 10; or leave at_least out for 1.';
    end if;
    return pglimit._hit_special(
        hit_up_to.limit_name, hit_up_to.subject, hit_up_to.max_hits, hit_up_to.per,
        hit_up_to.wanted, hit_up_to.algorithm, hit_up_to.burst, v_tenant,
        at_least => hit_up_to.at_least);
end
$$;

comment on function pglimit.hit_up_to(
    text, text, bigint, bigint, bigint, interval, text, bigint, text) is
    'Records as many hits as the limit allows, at_least to wanted; charged says how many. '
    'One row, as of hit; a refusal writes nothing. '
    'PGL01 invalid argument, PGL02 unknown limit, PGL03 wrong transaction, '
    '55P03 after 1 s of waiting.';

revoke all on function pglimit.hit_up_to(
    text, text, bigint, bigint, bigint, interval, text, bigint, text) from public;
