-- What a limit would have answered to recorded events, in the order of their instants; those of one
-- instant in the order of the arrays. Each is decided by the function that decides hits, at the
-- event's instant: the one function of a caller that takes instants, and safe to, as what it counts
-- nobody else can see. What is not given is the limit's row's. Its mode, overrides, durable and
-- present counts play no part. Subjects do not matter to each other: a log may come in parts, all
-- events of a subject in one. A cost of 0 looks.
-- Writes: nothing that stays. limits (one row) and counters (one a subject) are written in a
-- subtransaction that always ends in a rollback; what it leaves is for vacuum. Locks: those rows.
-- Safe beside calls that count: the rows are of a tenant with a control character, which no call
-- can name, and the session's number. They are made as closed counters beforehand, so that no event
-- takes a creation lock, which would have real hits wait.
create or replace function pglimit.simulate(
    limit_name text,
    subjects text[],
    instants timestamptz[],
    costs bigint[] default null,
    max_hits bigint default null,
    per interval default null,
    algorithm text default null,
    burst bigint default null,
    tenant text default null,
    time_zone text default null
)
returns setof pglimit.simulate_row
language plpgsql
volatile
parallel unsafe
called on null input
security definer
rows 1000
set search_path = pg_catalog, pg_temp
set row_security = on
set lock_timeout = '1s'
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_tenant text := coalesce(simulate.tenant, current_setting('pglimit.tenant', true), '');
    v_private text := format(e'\x01simulation %s', pg_backend_pid());
    v_rule pglimit.limits;
    v_events bigint := cardinality(simulate.subjects);
    v_event record;
    v_hit pglimit.hit_row;
    v_answers pglimit.simulate_row[];
begin
    if current_setting('transaction_isolation') <> 'read committed'
        or current_setting('transaction_read_only') <> 'off'
    then
        perform pglimit._check_transaction('simulate');
    end if;
    if v_events is null
        or cardinality(simulate.instants) is distinct from v_events
        or cardinality(simulate.costs) <> v_events
        or v_events > 1000000
    then
        raise exception using
            errcode = 'PGL01',
            message = format('%s subjects, %s instants, %s costs',
                coalesce(v_events::text, 'no'),
                coalesce(cardinality(simulate.instants)::text, 'no'),
                coalesce(cardinality(simulate.costs)::text, 'no')),
            detail = 'An event is a subject, an instant and a cost; there may be 1,000,000 a call.',
            hint = 'Pass arrays of one length; without costs each is 1. More events go in '
                || 'several calls, all of a subject in one.';
    end if;
    if exists (
        select
        from unnest(simulate.instants) i (instant)
        where (i.instant >= '0001-01-01 00:00Z' and i.instant < '10000-01-01 00:00Z') is not true
    ) or exists (
        select
        from unnest(simulate.costs) k (cost)
        where (k.cost >= 0) is not true
    ) then
        raise exception using
            errcode = 'PGL01',
            message = 'an instant or a cost is null or out of range',
            detail = 'Each event happened in one of the years 1 to 9999, and costs zero (a look) '
                || 'or more.',
            hint = 'Leave such events out.';
    end if;
    perform pglimit._check_names('limit', simulate.limit_name, 'subject', s.subject, v_tenant)
    from (select distinct unnest(simulate.subjects) as subject) s;

    select l.* into v_rule
    from pglimit.limits l
    where l.tenant in (v_tenant, '') and l.limit_name = simulate.limit_name
    order by l.tenant desc
    limit 1;
    if simulate.algorithm <> v_rule.algorithm then
        v_rule.burst := null;
        v_rule.time_zone := null;
    end if;
    v_rule.algorithm := coalesce(simulate.algorithm, v_rule.algorithm, 'fixed_window');
    v_rule.max_hits := coalesce(simulate.max_hits, v_rule.max_hits);
    v_rule.per := coalesce(simulate.per, v_rule.per);
    v_rule.burst := coalesce(simulate.burst, v_rule.burst);
    v_rule.time_zone := coalesce(simulate.time_zone, v_rule.time_zone);
    perform pglimit._check_hit(
        simulate.limit_name, 'any', v_rule.max_hits, v_rule.per, 1, v_rule.algorithm,
        v_rule.burst, v_tenant);
    if v_rule.max_hits is null or v_rule.per is null then
        perform pglimit._unknown_limit(simulate.limit_name, v_rule.max_hits);
    end if;
    perform pglimit._check_time_zone(v_rule.time_zone, v_rule.algorithm);

    begin
        insert into pglimit.limits (
            tenant, limit_name, max_hits, per, algorithm, burst, durable, mode, on_outage,
            limit_version, updated_at, updated_by, time_zone)
        values (
            v_private, simulate.limit_name, v_rule.max_hits, v_rule.per, v_rule.algorithm,
            v_rule.burst, false, 'enforce', 'allow', 0, clock_timestamp(), session_user,
            v_rule.time_zone);
        insert into pglimit.counters (key, turn, changes, used, window_start, reset_at)
        select
            format(e'%s\x1f%s\x1f%s', v_private, simulate.limit_name, s.subject),
            0, 0, 0, '-infinity', '-infinity'
        from (select distinct unnest(simulate.subjects) as subject) s;
        for v_event in
            select e.number, e.subject, e.instant, coalesce(e.cost, 1) as cost
            from unnest(simulate.subjects, simulate.instants, simulate.costs)
                with ordinality e (subject, instant, cost, number)
            order by e.instant, e.number
        loop
            v_hit := pglimit._hit_special(
                simulate.limit_name, v_event.subject, null, null, greatest(v_event.cost, 1),
                null, null, v_private, look_only => v_event.cost = 0, at => v_event.instant);
            v_answers := v_answers || row(
                v_event.number, v_hit.allowed, v_hit.reason, v_hit.quota, v_hit.remaining,
                v_hit.retry_after)::pglimit.simulate_row;
        end loop;
        raise exception using
            errcode = 'PGL00',
            message = 'nothing of a simulation stays',
            detail = 'The function raises this itself, to undo what it counted.',
            hint = 'It is caught below.';
    exception
        when sqlstate 'PGL00' then
            null;
    end;
    return query
    select a.event, a.allowed, a.reason, a.quota, a.remaining, a.retry_after
    from unnest(v_answers) a;
end
$$;

comment on function pglimit.simulate(
    text, text[], timestamptz[], bigint[], bigint, interval, text, bigint, text, text) is
    'Says what a limit would have answered to recorded events, and keeps nothing of it. '
    'PGL01 invalid argument, PGL02 unknown limit, PGL03 wrong transaction.';

revoke all on function pglimit.simulate(
    text, text[], timestamptz[], bigint[], bigint, interval, text, bigint, text, text) from public;
