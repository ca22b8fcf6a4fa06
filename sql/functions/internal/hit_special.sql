-- Decides a hit where hit's straight way does not serve: the limit is not plain (another algorithm
-- than fixed_window, another mode than enforce, durable), the subject may have an override or a
-- block, or a refusal has to look for a mode first; and all looks: peek, a cost of 0. The
-- arguments are the caller's own: null where the limit's row is to give them, and that is looked
-- up here. An override beats the row and the arguments, a mode beats the decision, a block beats
-- all but what is forced. For a call that brings its own limit the mode counts where it would be
-- refused, as in hit: so `off` records what is within the limit that was given.
--   * look_only: writes nothing, and says what would be;
--   * at: the instant to decide by, for simulation; null for the clock;
--   * at_least: takes what is left, when that is less than cost but so much;
--   * forced: counts the cost, which may be negative, whatever is left, unless more than max_debt
--     would be missing then; remaining may be below 0. What is given back is of what is open now,
--     in every mode;
--   * hold_for: keeps what is charged as a hold for so long, and `charged` is its hold_id then, or
--     0 where nothing was counted;
--   * hold: the hold that the cost corrects: what is given back is of the window it was charged in
--     alone.
-- Writes: counters or durable_counters (one row; of a limit that has become durable both, as the
-- count moves); holds or durable_holds. Locks: that row; for a key without a row, first its
-- creation lock; for a hold, last the installation's row in a new epoch. A refusal writes and locks
-- nothing.
-- Safe under concurrency because it decides by a plain read and writes only to the row as it was
-- read (every change counts up changes, or the turn); else it decides again by the row under its
-- lock, with a fresh clock and a fresh look at the override. Who waited for somebody who gave up
-- counts as of the instant before the wait: nobody changed the row since. Who sets an
-- override stamps the row, a change as well, so a row that is unstamped then has no override that
-- could hold, and a stamp is taken off only when none is left.
-- Sources: sliding_window weighs the window before by how much of it is still within one length of
-- now; token_bucket is the generic cell rate algorithm (ITU-T I.371) in virtual scheduling.
-- Of a bucket a hold can give back no more than the least it lacked since the charge, or others
-- would be given what leaked long ago. That is not recorded, but it is at least what would be
-- lacking now had nobody hit since and others been given back what they were, of what was held
-- before: so much is given back at most. What would take 9,500 years to leak is taken for so long.
-- Changes of the limit's row that counts are to be carried over are applied here, to what the call
-- then decides by: so a refusal leaves that to the next. Each is applied once, for the counter has
-- a new open_since then; a call that brings its own limit does not go by the row and carries
-- nothing.
create or replace function pglimit._hit_special(
    limit_name text,
    subject text,
    max_hits bigint,
    per interval,
    cost bigint,
    algorithm text,
    burst bigint,
    tenant text,
    look_only boolean default false,
    at timestamptz default null,
    at_least bigint default null,
    forced boolean default false,
    max_debt bigint default null,
    hold_for interval default null,
    hold pglimit.holds default null
)
returns pglimit.hit_row
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_key text := format(
        e'%s\x1f%s\x1f%s', _hit_special.tenant, _hit_special.limit_name, _hit_special.subject);
    v_rule pglimit.limits;
    v_max bigint := _hit_special.max_hits;
    v_per interval := _hit_special.per;
    v_algorithm text := _hit_special.algorithm;
    v_burst bigint := _hit_special.burst;
    v_unit text;
    v_us numeric;
    v_phase text := 'look';
    v_row pglimit.counter_state;
    v_reset timestamptz;
    v_now timestamptz;
    v_open boolean;
    v_cost bigint;
    v_quota bigint;
    v_version bigint;
    v_override pglimit.limit_overrides;
    v_left numeric;
    v_after numeric;
    v_refused boolean;
    v_retry interval;
    v_weight numeric;
    v_elapsed numeric;
    v_level numeric;
    v_rate bigint;
    v_changes integer;
    v_kept boolean;
    v_given boolean := _hit_special.max_hits is not null and _hit_special.per is not null;
    v_on_outage text;
    v_until timestamptz;
    v_blocked boolean;
    v_ranges boolean;
    v_block pglimit.block_row;
    v_short boolean;
    v_part integer;
    v_hold pglimit.holds;
    v_back boolean := _hit_special.cost < 0;
    v_settles boolean := _hit_special.hold.hold_id is not null;
    v_since timestamptz;
    v_other boolean;
    v_end timestamptz;
    v_nothing boolean;
    v_from bigint[];
    v_to bigint[];
    v_carried_at timestamptz;
begin
    select l.* into v_rule
    from pglimit.limits l
    where l.tenant in (_hit_special.tenant, '') and l.limit_name = _hit_special.limit_name
    order by l.tenant desc
    limit 1;
    if not v_given then
        v_on_outage := v_rule.on_outage;
        if v_rule.limit_name is null then
            perform pglimit._check_hit(
                _hit_special.limit_name, _hit_special.subject, v_max, v_per, _hit_special.cost,
                v_algorithm, v_burst, _hit_special.tenant);
            perform pglimit._unknown_limit(_hit_special.limit_name, v_max);
        end if;
        v_algorithm := coalesce(v_algorithm, v_rule.algorithm);
        if v_algorithm = v_rule.algorithm then
            v_burst := coalesce(v_burst, v_rule.burst);
        end if;
        v_max := coalesce(v_max, v_rule.max_hits);
        v_per := coalesce(v_per, v_rule.per);
    else
        -- who brings a limit brings all of it; its row says whether it is durable, and when a day
        -- begins
        v_algorithm := coalesce(v_algorithm, 'fixed_window');
    end if;
    if v_algorithm = 'calendar' then
        v_unit := pglimit._calendar_unit(v_per);
    else
        v_per := pglimit._fixed_interval('per', v_per);
        v_us := extract(epoch from v_per) * 1000000;
    end if;

    for v_attempt in 1..1000 loop
        if v_rule.durable then
            if v_phase = 'lock' then
                select c.* into v_row
                from pglimit.durable_counters c
                where c.key = v_key and c.turn = v_row.turn
                for update;
            else
                select c.* into v_row
                from pglimit.durable_counters c
                where c.key = v_key
                order by c.turn desc
                limit 1;
                if not found then
                    -- counted without a log until its limit became durable: it goes on from there,
                    -- and hit's straight way no longer counts there
                    if v_phase = 'create' then
                        perform pglimit._stamp_counter(v_key, 'hit');
                    end if;
                    select c.* into v_row
                    from pglimit.counters c
                    where c.key = v_key
                    order by c.turn desc
                    limit 1;
                    v_row.turn := null;
                end if;
            end if;
        else
            if v_phase = 'lock' then
                select c.* into v_row
                from pglimit.counters c
                where c.key = v_key and c.turn = v_row.turn
                for update;
            else
                select c.* into v_row
                from pglimit.counters c
                where c.key = v_key
                order by c.turn desc
                limit 1;
            end if;
        end if;
        if v_phase = 'lock' and not found then
            v_phase := 'look';
            continue;
        end if;
        v_now := coalesce(_hit_special.at, clock_timestamp());
        v_reset := coalesce(v_row.reset_at, v_row.special_reset_at);
        v_end := v_reset;

        -- the quota, and whether the row is to be stamped for an override
        v_quota := v_max;
        v_version := case when not v_given then v_rule.limit_version end;
        if v_row.turn is null or v_row.overridden or v_rule.durable then
            select o.* into v_override
            from pglimit.limit_overrides o
            where o.tenant = _hit_special.tenant
                and o.limit_name = _hit_special.limit_name
                and o.subject = _hit_special.subject
                and coalesce(o.valid_until > v_now, true);
            v_row.overridden := found;
            if found and coalesce(v_override.valid_from <= v_now, true) then
                v_quota := v_override.max_hits;
                v_version := v_override.limit_version;
            end if;
            -- and whether it is blocked, whatever the limit's mode: somebody meant this subject
            select b.blocked_until, true, b.subject = ''
            into v_until, v_blocked, v_ranges
            from pglimit.blocks b
            where b.tenant = _hit_special.tenant
                and b.limit_name in (_hit_special.limit_name, '*')
                and b.subject in (_hit_special.subject, '')
                and coalesce(b.blocked_until > v_now, true)
            order by b.subject, b.blocked_until desc nulls first
            limit 1;
            if v_ranges then
                v_block := pglimit._find_block(
                    _hit_special.tenant, _hit_special.limit_name, _hit_special.subject, v_now);
                v_until := v_block.blocked_until;
                v_blocked := v_block.tenant is not null;
            end if;
            v_row.overridden := v_row.overridden or v_blocked is true;
            if v_blocked and not _hit_special.forced then
                return row(
                    false,
                    'blocked',
                    case
                        when v_algorithm = 'token_bucket' and v_quota > 0
                            then coalesce(v_burst, v_quota)
                        else v_quota
                    end,
                    0,
                    v_until - v_now,
                    v_until,
                    v_on_outage,
                    v_version,
                    0)::pglimit.hit_row;
            end if;
        end if;
        v_open := coalesce(v_reset > v_now, false);
        v_from := null;
        v_carried_at := null;
        if v_open and v_rule.carries_until is not null and not v_given then
            if _hit_special.cost = 0 and not _hit_special.look_only then
                v_rule.mode := 'enforce'; -- from _carry_counter, which wants it written in any mode
            end if;
            v_since := v_row.open_since;
            if v_row.algorithm is null then
                v_since := greatest(v_row.window_start, v_since);
            end if;
            -- the row's last change is its present version
            if coalesce(v_since < v_rule.updated_at, true) then
                select f.reset, f.from_hits, f.to_hits, f.changed_at
                into v_nothing, v_from, v_to, v_carried_at
                from pglimit._find_carries(
                    v_rule, _hit_special.tenant, _hit_special.subject, v_since) f;
                if v_nothing then
                    v_open := false;
                    v_reset := null;
                end if;
            end if;
        end if;
        if not v_open then
            v_row.used := 0;
            v_row.previous := null;
            v_row.shadow_refused := 0;
            v_row.window_start := v_now;
            v_row.open_since := greatest(v_now, v_carried_at);
            v_row.bucket_sums := '{0, 0, 0}';
            v_row.algorithm := null;
        else
            v_other := v_row.algorithm is distinct from
                nullif(nullif(v_algorithm, 'fixed_window'), 'calendar')
                or v_from is not null;
            if v_algorithm = 'token_bucket' and not v_other then
                v_other := v_row.previous <> greatest(v_quota, 1)
                    or v_reset - v_row.window_start <> v_per;
            end if;
            if v_other then
                -- counted in another way until now, or of before a change. A bucket leaks in the
                -- way it is asked for since it was counted, and not before there was that way
                v_since := case
                    when v_version = v_override.limit_version
                        then greatest(v_override.updated_at, v_override.valid_from)
                    when not v_given then v_rule.updated_at
                    when v_row.algorithm is distinct from v_algorithm then v_now
                end;
                v_since := least(coalesce(greatest(v_since, v_row.counted_at), v_now), v_now);
                select k.used, k.previous, k.window_start, k.reset_at
                into v_row.used, v_row.previous, v_row.window_start, v_reset
                from pglimit._count_as(
                    v_algorithm, v_row, v_reset, v_quota, v_per, v_now, v_since, v_from, v_to) k;
                v_row.open_since := greatest(v_now, v_carried_at);
                v_row.bucket_sums := '{0, 0, 0}';
                v_open := v_reset > v_now;
            end if;
        end if;

        -- v_left is what is there to be used, v_after what is then left of it
        v_cost := _hit_special.cost;
        case v_algorithm
            when 'sliding_window' then
                v_elapsed := extract(epoch from v_now - v_row.window_start) * 1000000;
                if v_elapsed >= 2 * v_us then
                    v_row.used := 0;
                    v_row.previous := 0;
                    v_row.window_start := v_now;
                    v_elapsed := 0;
                elsif v_elapsed >= v_us then
                    v_row.previous := v_row.used;
                    v_row.used := 0;
                    v_row.window_start := v_row.window_start + v_per;
                    v_elapsed := v_elapsed - v_us;
                end if;
                v_row.previous := coalesce(v_row.previous, 0);
                v_weight := v_row.previous * (v_us - v_elapsed);
                v_left := v_quota - v_row.used - ceil(v_weight / v_us);
            when 'token_bucket' then
                v_rate := greatest(v_quota, 1);
                v_quota := case when v_quota = 0 then 0 else coalesce(v_burst, v_quota) end;
                -- what is used, in microseconds times hits
                v_level := case
                    when v_open then
                        extract(epoch from v_reset - v_now) * 1000000 * v_rate - v_row.used
                    else 0
                end;
                v_left := v_quota - ceil(v_level / v_us);
            else
                v_left := v_quota - v_row.used;
        end case;
        v_short := coalesce(_hit_special.at_least <= v_left and v_left < v_cost, false);
        if v_short then
            v_cost := v_left;
        elsif _hit_special.at_least > v_left then
            v_cost := _hit_special.at_least;
        end if;
        if v_back and v_settles and (
            v_row.open_since is distinct from _hit_special.hold.open_since
            or v_algorithm <> 'token_bucket'
            and v_row.window_start is distinct from _hit_special.hold.window_start
        ) then
            v_cost := 0;
        end if;
        v_refused := case
            when _hit_special.forced then coalesce(v_cost > v_left + _hit_special.max_debt, false)
            else v_cost > v_left
        end;
        if v_rule.mode = 'off' and not v_back and (v_refused or not v_given) then
            return row(
                true, 'off', v_quota, v_quota, null, null, v_on_outage, v_version,
                0)::pglimit.hit_row;
        elsif v_back and (v_cost = 0 or not v_open) then
            return row(
                true, 'allowed', v_quota, greatest(v_left, -9223372036854775807), null,
                case when v_open then least(v_reset, v_end) end, v_on_outage, v_version,
                0)::pglimit.hit_row;
        end if;
        v_retry := null;
        if v_refused and not _hit_special.forced and v_cost <= v_quota then
            v_retry := case v_algorithm
                when 'sliding_window' then least(
                    v_reset - v_now,
                    pglimit._sliding_wait(
                        v_row.previous, v_row.used, v_quota - v_cost, v_us, v_elapsed))
                when 'token_bucket' then make_interval(secs => (
                    div(v_level - (v_quota - v_cost) * v_us + v_rate - 1, v_rate) / 1000000
                )::double precision)
                else v_reset - v_now
            end;
        end if;
        if v_refused and v_rule.mode is distinct from 'shadow' or _hit_special.look_only then
            -- nothing is written, so the row ends when it would have
            return row(
                not v_refused or coalesce(v_rule.mode = 'shadow', false),
                case
                    when not v_refused then 'allowed'
                    when v_rule.mode = 'shadow' then 'shadow'
                    when v_cost > v_quota + coalesce(_hit_special.max_debt, 0)::numeric then 'never'
                    else 'limit'
                end,
                v_quota,
                greatest(
                    v_left, case when _hit_special.forced then -9223372036854775807 else 0 end),
                case when v_retry is not null then least(v_retry, v_end - v_now) end,
                case when v_open then least(v_reset, v_end) end,
                v_on_outage,
                v_version,
                0)::pglimit.hit_row;
        end if;

        -- a change: of a new row under the creation lock, of one that is there under its own
        if v_row.turn is null and v_phase <> 'create' then
            perform pglimit._check_hit(
                _hit_special.limit_name, _hit_special.subject, v_max, v_per,
                abs(_hit_special.cost), v_algorithm, v_burst, _hit_special.tenant);
            perform pglimit._lock_creation(0, v_key);
            v_phase := 'create';
            continue;
        elsif v_row.turn is not null and v_phase = 'create' then
            v_phase := 'look'; -- somebody else has made it
        end if;
        v_changes := v_row.changes;
        v_after := v_left;
        if v_refused or v_short and v_rule.mode = 'shadow' then
            v_row.shadow_refused := v_row.shadow_refused + 1;
        end if;
        if v_refused then
            v_cost := 0;
        elsif v_algorithm = 'token_bucket' then
            v_weight := v_cost * v_us;
            if v_back and v_settles then
                -- no more time than it took, should the limit be another one now
                if v_us / v_rate > _hit_special.hold.hit_time then
                    v_weight := trunc(v_weight * _hit_special.hold.hit_time / (v_us / v_rate));
                end if;
                v_weight := greatest(
                    v_weight,
                    least(
                        (
                            extract(epoch from v_now - _hit_special.hold.reset_at) * 1000000
                            + least(
                                v_row.bucket_sums[1] - _hit_special.hold.bucket_sums[1],
                                _hit_special.hold.bucket_sums[3])
                            + v_row.bucket_sums[2] - _hit_special.hold.bucket_sums[2]
                        ) * v_rate + least(_hit_special.hold.used_part, v_rate),
                        0));
            end if;
            if v_weight < 0 then
                v_weight := greatest(v_weight, -v_level);
                v_part := case when v_settles then 1 else 2 end;
                v_row.bucket_sums[v_part] := least(
                    v_row.bucket_sums[v_part] + ceil(-v_weight / v_rate), 9223372036854775807);
            end if;
            v_hold.bucket_sums := v_row.bucket_sums;
            v_hold.hit_time := v_us / v_rate;
            if _hit_special.hold_for is not null then
                v_hold.bucket_sums[4] := least(
                    ceil(v_cost * v_us / v_rate), 9223372036854775807 - v_row.bucket_sums[3]);
                v_row.bucket_sums[3] := v_row.bucket_sums[3] + v_hold.bucket_sums[4];
            elsif v_settles and v_row.open_since = _hit_special.hold.open_since then
                v_row.bucket_sums[3] := greatest(
                    v_row.bucket_sums[3] - _hit_special.hold.bucket_sums[4], 0);
            end if;
            v_level := least(greatest(v_level + v_weight, 0), 300000000000000000 * v_rate::numeric);
            v_after := v_quota - ceil(v_level / v_us);
            v_elapsed := div(v_level + v_rate - 1, v_rate); -- up; a quotient may be rounded down
            v_row.used := v_elapsed * v_rate - v_level;
            v_row.previous := v_rate;
            v_reset := v_now + make_interval(secs => (v_elapsed / 1000000)::double precision);
            v_row.window_start := v_reset - v_per;
        else
            -- what is given back is taken from the present window, and never more than was used
            v_cost := greatest(v_cost, -v_row.used);
            v_row.used := least(v_row.used::numeric + v_cost, 9223372036854775807);
            v_after := v_left - v_cost;
            if v_algorithm = 'sliding_window' and v_cost > 0 then
                v_reset := greatest(v_reset, v_now + v_per);
            end if;
        end if;
        if not v_open and v_algorithm in ('fixed_window', 'calendar') then
            if v_unit is not null then
                v_row.window_start := date_trunc(v_unit, v_now, coalesce(v_rule.time_zone, 'UTC'));
                v_reset := (
                    v_row.window_start at time zone coalesce(v_rule.time_zone, 'UTC')
                    + ('1 ' || v_unit)::interval) at time zone coalesce(v_rule.time_zone, 'UTC');
                if v_unit = 'hour' then
                    -- by the clock on the wall one would be missing, or last two
                    v_reset := v_row.window_start + interval '1 hour';
                elsif v_row.window_start > v_now then
                    -- midnight comes twice, and begins the day the second time
                    v_reset := v_row.window_start;
                    v_row.window_start := date_trunc(
                        v_unit, v_now - interval '1 hour', coalesce(v_rule.time_zone, 'UTC'));
                end if;
            else
                v_reset := v_now + v_per;
            end if;
        elsif v_algorithm = 'sliding_window' and not v_open then
            v_reset := greatest(v_reset, v_now + v_per); -- refused, in mode shadow
        elsif v_reset is null then
            v_reset := v_now;
        end if;
        v_row.algorithm := nullif(nullif(v_algorithm, 'fixed_window'), 'calendar');
        v_row.counted_at := case when v_algorithm = 'token_bucket' then v_now end;
        v_row.reset_at := case
            when not v_row.overridden and v_row.algorithm is null then v_reset
        end;
        v_row.special_reset_at := case when v_row.reset_at is null then v_reset end;
        -- a straight way may go on with what is counted by the row alone, or the call, and no debt
        v_row.counted_by := case
            when v_row.overridden or v_after < 0 or v_row.previous > v_max then null
            when v_given and v_row.algorithm is not null then
                pglimit._counted_by(
                    v_max,
                    v_us::bigint,
                    case when v_algorithm = 'token_bucket' then coalesce(v_burst, v_max) end)
            when num_nonnulls(
                    _hit_special.max_hits, _hit_special.per, _hit_special.algorithm,
                    _hit_special.burst) = 0
                and v_rule.straight_us > 0
                then v_rule.limit_version
        end;
        if v_phase <> 'look' then
            perform pglimit._keep_count(v_key, v_row, v_now, coalesce(v_rule.durable, false));
            if v_phase = 'create' and v_rule.durable then
                update pglimit.counters c
                set special_reset_at = v_now
                where c.key = v_key and c.special_reset_at > v_now;
            end if;
        else
            -- as it was when it was read; else once more, under its lock
            if v_rule.durable then
                v_kept := pglimit._keep_count(v_key, v_row, v_now, true, v_changes);
            else
                -- as _keep_count does, which would cost a call here
                update pglimit.counters c
                set turn = case
                        when c.changes < 64 then c.turn
                        else greatest(c.turn + 1, (date_part('epoch', v_now) * 1000000)::bigint)
                    end,
                    changes = case when c.changes < 64 then c.changes + 1 else 0 end,
                    used = v_row.used,
                    window_start = v_row.window_start,
                    reset_at = v_row.reset_at,
                    special_reset_at = v_row.special_reset_at,
                    shadow_refused = v_row.shadow_refused,
                    overridden = v_row.overridden,
                    algorithm = v_row.algorithm,
                    previous = v_row.previous,
                    open_since = v_row.open_since,
                    bucket_sums = v_row.bucket_sums,
                    counted_by = v_row.counted_by,
                    counted_at = v_row.counted_at
                where c.key = v_key
                    and c.turn = v_row.turn
                    and c.changes = v_changes;
                v_kept := found;
            end if;
            if not v_kept then
                v_phase := 'lock';
                continue;
            end if;
        end if;
        if _hit_special.hold_for is not null and not v_refused then
            v_hold.tenant := _hit_special.tenant;
            v_hold.limit_name := _hit_special.limit_name;
            v_hold.subject := _hit_special.subject;
            if num_nonnulls(
                _hit_special.max_hits, _hit_special.per, _hit_special.algorithm,
                _hit_special.burst) > 0
            then
                -- all of it: what the row gives besides may not go with it later
                v_hold.max_hits := v_max;
                v_hold.per := v_per;
                v_hold.algorithm := v_algorithm;
                v_hold.burst := v_burst;
            end if;
            v_hold.charged := v_cost;
            v_hold.window_start := v_row.window_start;
            v_hold.open_since := v_row.open_since;
            v_hold.reset_at := v_reset;
            if v_algorithm = 'token_bucket' then
                v_hold.used_part := v_row.used;
            end if;
            v_hold.held_at := v_now;
            v_hold.expires_at := v_now + _hit_special.hold_for;
            v_hold.returns := coalesce(v_rule.on_lapse = 'return', false);
            v_cost := pglimit._keep_hold(v_hold, coalesce(v_rule.durable, false));
        end if;
        return row(
            true,
            case
                when v_refused or v_short and v_rule.mode = 'shadow' then 'shadow'
                else 'allowed'
            end,
            v_quota,
            greatest(
                v_after, case when _hit_special.forced then -9223372036854775807 else 0 end),
            v_retry,
            v_reset,
            v_on_outage,
            v_version,
            v_cost)::pglimit.hit_row;
    end loop;

    raise exception using
        errcode = '55P03',
        message = format('hit on limit %s lost every race', quote_literal(_hit_special.limit_name)),
        detail = 'Other sessions changed the count between each look and its update, 1,000 times.',
        hint = 'Try again; if it stays, look for a client that hits one subject without pause.';
end
$$;

comment on function pglimit._hit_special(
    text, text, bigint, interval, bigint, text, bigint, text, boolean, timestamptz, bigint,
    boolean, bigint, interval, pglimit.holds) is
    'internal: a hit of a limit that is not plain or a subject with an override, or a look';

revoke all on function pglimit._hit_special(
    text, text, bigint, interval, bigint, text, bigint, text, boolean, timestamptz, bigint,
    boolean, bigint, interval, pglimit.holds) from public;
