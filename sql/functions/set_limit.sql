-- Creates or replaces a limit; the next call of hit goes by it. Counts that were used stay used
-- (carry keep), in proportion to the capacity, or are nothing (reset): the latter two are noted in
-- limit_carries, and a counter is carried when it is next decided on (see _hit_special). While
-- counters of before may be open, the limit's hits go the special way. A hit that looked the row
-- up before this commits counts as before the change; a window it begins meanwhile stays as it is.
-- Writes: limits, limit_carries, limit_versions, changes, special_limits. Locks: the limit's row,
-- before its version is drawn, so that the version of a limit only grows, as does its instant.
-- Whoever finds no row and then meets one that somebody else has made meanwhile looks again, so
-- that the history says what it replaced. Before a row in another mode than enforce is seen, the
-- flag that has hit look for modes is up.
create or replace function pglimit.set_limit(
    limit_name text,
    max_hits bigint,
    per interval,
    algorithm text default 'fixed_window',
    burst bigint default null,
    durable boolean default false,
    mode text default 'enforce',
    on_outage text default 'allow',
    tenant text default null,
    time_zone text default null,
    on_lapse text default 'keep',
    carry text default 'keep'
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
set intervalstyle = postgres
as $$
#variable_conflict use_column
declare
    v_tenant text := coalesce(set_limit.tenant, current_setting('pglimit.tenant', true), '');
    v_per interval;
    v_before jsonb;
    v_after jsonb;
    v_version bigint;
    v_old pglimit.limits;
    v_new pglimit.limits;
begin
    if current_setting('transaction_read_only') <> 'off' then
        perform pglimit._check_transaction('set_limit');
    end if;
    perform pglimit._check_hit(
        set_limit.limit_name, 'any', set_limit.max_hits, set_limit.per, 1,
        coalesce(set_limit.algorithm, 'null'), set_limit.burst, v_tenant);
    if set_limit.max_hits is null then
        raise exception using
            errcode = 'PGL01',
            message = 'max_hits is null',
            detail = 'A limit is a number of hits per interval.',
            hint = 'Pass max_hits => 10; 0 refuses everything.';
    end if;
    if set_limit.durable is null then
        raise exception using
            errcode = 'PGL01',
            message = 'durable is null',
            detail = 'The counts of a durable limit survive a crash of the server, and cost more.',
            hint = 'Pass durable => true or durable => false, or leave it out.';
    end if;
    perform pglimit._check_time_zone(set_limit.time_zone, set_limit.algorithm);
    if set_limit.on_lapse is null or set_limit.on_lapse not in ('keep', 'return') then
        raise exception using
            errcode = 'PGL01',
            message = format('on_lapse %s is unknown',
                coalesce(quote_literal(set_limit.on_lapse), 'null')),
            detail = 'It says what becomes of a hold that is not settled in time: it stays '
                || 'charged, or purge gives it back.',
            hint = 'Pass on_lapse => ''keep'' or ''return''.';
    end if;
    if set_limit.carry is null or set_limit.carry not in ('keep', 'proportional', 'reset') then
        raise exception using
            errcode = 'PGL01',
            message = format('carry %s is unknown',
                coalesce(quote_literal(left(set_limit.carry, 100)), 'null')),
            detail = 'It says what becomes of what subjects have used before the change: it stays '
                || 'used, goes with the capacity in proportion, or is nothing.',
            hint = 'Pass carry => ''keep'', ''proportional'' or ''reset''.';
    end if;
    perform pglimit._check_rule(set_limit.mode, set_limit.on_outage);
    v_per := set_limit.per;
    if set_limit.algorithm = 'calendar' then
        perform pglimit._calendar_unit(v_per);
    else
        v_per := pglimit._fixed_interval('per', v_per);
    end if;
    if set_limit.mode <> 'enforce' or set_limit.durable then
        perform setval('pglimit.special_limits', 1);
    end if;
    for v_attempt in 1..100 loop
        select l.*
        into v_old
        from pglimit.limits l
        where l.tenant = v_tenant and l.limit_name = set_limit.limit_name
        for update;
        if found then
            v_before := to_jsonb(v_old);
            update pglimit.limits l
            set max_hits = set_limit.max_hits,
                per = v_per,
                algorithm = set_limit.algorithm,
                burst = set_limit.burst,
                durable = set_limit.durable,
                mode = set_limit.mode,
                on_outage = set_limit.on_outage,
                time_zone = set_limit.time_zone,
                on_lapse = set_limit.on_lapse,
                limit_version = nextval('pglimit.limit_versions'),
                updated_at = clock_timestamp(),
                updated_by = session_user
            where l.tenant = v_tenant and l.limit_name = set_limit.limit_name
            returning l.* into v_new;
        else
            v_before := null;
            insert into pglimit.limits as l (
                tenant, limit_name, max_hits, per, algorithm, burst, durable, mode, on_outage,
                time_zone, on_lapse, limit_version, updated_at, updated_by)
            values (
                v_tenant, set_limit.limit_name, set_limit.max_hits, v_per, set_limit.algorithm,
                set_limit.burst, set_limit.durable, set_limit.mode, set_limit.on_outage,
                set_limit.time_zone, set_limit.on_lapse, nextval('pglimit.limit_versions'),
                clock_timestamp(), session_user)
            on conflict on constraint limits_pkey do nothing
            returning l.* into v_new;
        end if;
        v_version := v_new.limit_version;
        exit when v_version is not null;
    end loop;
    if v_version is null then
        perform pglimit._lost_races(set_limit.limit_name);
    end if;
    v_after := to_jsonb(v_new);
    if set_limit.carry <> 'keep' then
        v_after := v_after || jsonb_build_object('carry', set_limit.carry);
    end if;
    perform pglimit._carry_limit(v_old, v_new, set_limit.carry);
    perform pglimit._record_change(
        'set_limit', v_tenant, set_limit.limit_name, v_before, v_after, version => v_version);
    return v_version;
end
$$;

comment on function pglimit.set_limit(
    text, bigint, interval, text, bigint, boolean, text, text, text, text, text, text) is
    'Creates or replaces the limit of this name. Returns its new limit_version. '
    'PGL01 invalid argument, PGL03 read-only or standby.';

revoke all on function pglimit.set_limit(
    text, bigint, interval, text, bigint, boolean, text, text, text, text, text, text) from public;
