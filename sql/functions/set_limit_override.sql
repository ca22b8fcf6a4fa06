-- Creates or replaces what one subject has instead of a limit's max_hits. There need be no row of
-- the limit: an override also beats the max_hits that a call brings, and `per` stays the call's.
-- Writes: limit_overrides, limit_versions, changes, counters (the key's row is stamped, see there,
-- and carried over changes of the limit first, see _carry_counter).
-- Locks: the key's creation lock, the override, the key's newest counter, to the end of the
-- transaction: hits of this subject wait for it, so it should end at once.
-- Safe under concurrency: whoever makes a row for the key holds the creation lock and looks for an
-- override under it. So either the row is there and committed before the stamp looks for it, or
-- its maker waits and then sees the override. A hit of a row that is there takes the row's lock: it
-- comes before the stamp, or finds it. The row is updated even where it is stamped already, for a
-- hit that holds it may be about to take the stamp of an override that is over away.
create or replace function pglimit.set_limit_override(
    limit_name text,
    subject text,
    max_hits bigint,
    valid_from timestamptz default null,
    valid_until timestamptz default null,
    tenant text default null
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
set intervalstyle = postgres
set timezone = 'UTC'
as $$
#variable_conflict use_column
declare
    v_tenant text := coalesce(
        set_limit_override.tenant, current_setting('pglimit.tenant', true), '');
    v_key text := format(
        e'%s\x1f%s\x1f%s', v_tenant, set_limit_override.limit_name, set_limit_override.subject);
    v_from timestamptz := nullif(set_limit_override.valid_from, '-infinity');
    v_until timestamptz := nullif(set_limit_override.valid_until, 'infinity');
    v_before jsonb;
    v_after jsonb;
    v_version bigint;
begin
    if current_setting('transaction_isolation') <> 'read committed'
        or current_setting('transaction_read_only') <> 'off'
    then
        perform pglimit._check_transaction('set_limit_override');
    end if;
    perform pglimit._check_names(
        'limit', set_limit_override.limit_name, 'subject', set_limit_override.subject, v_tenant);
    if set_limit_override.max_hits is null or set_limit_override.max_hits < 0 then
        raise exception using
            errcode = 'PGL01',
            message = format('max_hits of %s is out of range',
                coalesce(set_limit_override.max_hits::text, 'null')),
            detail = 'An override is the hits that this subject has in a window: zero or more.',
            hint = 'Pass max_hits => 0 to refuse everything; to go back to the limit call '
                || 'pglimit.drop_limit_override.';
    end if;
    if v_from = 'infinity' then
        raise exception using
            errcode = 'PGL01',
            message = 'valid_from is infinity',
            detail = 'Such an override would never begin.',
            hint = 'Pass the instant at which it begins, or null for now.';
    end if;
    if v_until <= v_from or v_until <= clock_timestamp() then
        raise exception using
            errcode = 'PGL01',
            message = format('valid_until of %s is too early', v_until),
            detail = 'The override would be over before it has begun, or is over now.',
            hint = 'Pass a later instant with its time zone, or null for ever: '
                || 'valid_until => now() + interval ''1 day''.';
    end if;

    perform pglimit._lock_creation(0, v_key);
    select to_jsonb(o)
    into v_before
    from pglimit.limit_overrides o
    where o.tenant = v_tenant
        and o.limit_name = set_limit_override.limit_name
        and o.subject = set_limit_override.subject
    for update;
    perform pglimit._carry_counter(
        set_limit_override.limit_name, set_limit_override.subject, v_tenant);
    insert into pglimit.limit_overrides as o (
        tenant, limit_name, subject, max_hits, valid_from, valid_until, limit_version, updated_at,
        updated_by)
    values (
        v_tenant, set_limit_override.limit_name, set_limit_override.subject,
        set_limit_override.max_hits, v_from, v_until, nextval('pglimit.limit_versions'),
        clock_timestamp(), session_user)
    on conflict on constraint limit_overrides_pkey do update
    set max_hits = excluded.max_hits,
        valid_from = excluded.valid_from,
        valid_until = excluded.valid_until,
        limit_version = excluded.limit_version,
        updated_at = excluded.updated_at,
        updated_by = excluded.updated_by
    returning o.limit_version, to_jsonb(o) into v_version, v_after;

    perform pglimit._stamp_counter(v_key, 'set_limit_override');
    perform pglimit._record_change(
        'set_limit_override', v_tenant, set_limit_override.limit_name, v_before, v_after,
        version => v_version);
    return v_version;
end
$$;

comment on function pglimit.set_limit_override(
    text, text, bigint, timestamptz, timestamptz, text) is
    'Creates or replaces what one subject has instead of a limit''s max_hits, for a time or for '
    'ever. Returns its limit_version. '
    'PGL01 invalid argument, PGL03 wrong transaction, 55P03 after 1 s of waiting.';

revoke all on function pglimit.set_limit_override(
    text, text, bigint, timestamptz, timestamptz, text) from public;
