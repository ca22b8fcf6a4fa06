-- What hit would answer now, without recording it. Writes and locks nothing, so it also works in a
-- read-only transaction. A cost of 0 is answered like a cost of 1, as hit does.
create or replace function pglimit.peek(
    limit_name text,
    subject text,
    max_hits bigint default null,
    per interval default null,
    cost bigint default 1,
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
    v_tenant text := coalesce(peek.tenant, current_setting('pglimit.tenant', true), '');
begin
    perform pglimit._check_standby('peek');
    perform pglimit._check_hit(
        peek.limit_name, peek.subject, peek.max_hits, peek.per, peek.cost,
        peek.algorithm, peek.burst, v_tenant);
    return pglimit._hit_special(
        peek.limit_name, peek.subject, peek.max_hits, peek.per, greatest(peek.cost, 1),
        peek.algorithm, peek.burst, v_tenant, look_only => true);
end
$$;

comment on function pglimit.peek(text, text, bigint, interval, bigint, text, bigint, text) is
    'Says what hit would answer now, and records nothing. One row, as of hit. '
    'PGL01 invalid argument, PGL02 unknown limit, PGL03 on a standby.';

revoke all on function pglimit.peek(text, text, bigint, interval, bigint, text, bigint, text)
    from public;
