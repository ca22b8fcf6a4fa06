-- Limits by name. A row of a tenant beats the row of tenant '', which holds for everyone.
create table pglimit.limits (
    tenant text collate "C" not null,
    limit_name text collate "C" not null,
    max_hits bigint not null,
    per interval not null,
    algorithm text not null,
    burst bigint,
    durable boolean not null,
    mode text not null,
    on_outage text not null,
    limit_version bigint not null,
    updated_at timestamptz not null,
    updated_by text not null,
    time_zone text,
    on_lapse text not null default 'keep',
    plain boolean generated always as (
        mode = 'enforce' and algorithm in ('fixed_window', 'calendar') and not durable
            and carries_until is null
    ) stored,
    straight_us bigint generated always as (
        case
            when mode <> 'enforce' or durable or carries_until is not null
                or algorithm = 'fixed_window' then null
            when algorithm = 'calendar' then 0
            -- products of microseconds and hits fit a bigint, and spans of time a double
            when max_hits > 0
                and extract(epoch from per) * 1000000 * greatest(max_hits, burst) < 2e18
                and extract(epoch from per) * greatest(max_hits, burst)
                    / greatest(max_hits, 1) < 3e8
                then (extract(epoch from per) * 1000000)::bigint
        end
    ) stored,
    straight_burst bigint generated always as (
        case when algorithm = 'token_bucket' then coalesce(burst, max_hits) end
    ) stored,
    straight_fill interval generated always as (
        case
            when algorithm = 'token_bucket' and max_hits > 0
                and extract(epoch from per) * coalesce(burst, max_hits)
                    / greatest(max_hits, 1) < 3e8
                then make_interval(secs => ceil(
                    extract(epoch from per) * 1000000 * coalesce(burst, max_hits)
                    / greatest(max_hits, 1))::double precision / 1000000)
        end
    ) stored,
    open_until timestamptz,
    carries_until timestamptz,
    constraint limits_pkey primary key (tenant, limit_name),
    constraint limits_max_hits_check check (max_hits >= 0),
    constraint limits_per_check check (per > '0 s'),
    constraint limits_algorithm_check check (
        algorithm in ('fixed_window', 'sliding_window', 'token_bucket', 'calendar')),
    constraint limits_burst_check check (
        burst is null or (burst > 0 and algorithm = 'token_bucket')),
    constraint limits_mode_check check (mode in ('enforce', 'shadow', 'off')),
    constraint limits_on_outage_check check (on_outage in ('allow', 'refuse')),
    constraint limits_on_lapse_check check (on_lapse in ('keep', 'return'))
);

comment on table pglimit.limits is
    'limits by name, read by hit and peek when the caller gives no limit';
comment on column pglimit.limits.per is
    'length of a window in fixed seconds (a day is 24 h), normalised when set; for algorithm '
    'calendar one hour, day, week, month or year';
comment on column pglimit.limits.burst is
    'what the bucket of a token_bucket holds; null for max_hits';
comment on column pglimit.limits.time_zone is
    'in which a calendar window begins; null for UTC and other algorithms';
comment on column pglimit.limits.on_lapse is
    'what becomes of a hold that is not settled in time: it stays charged, or purge returns it';
comment on column pglimit.limits.open_until is
    'when no counter can be open any more that was begun under a row before this one';
comment on column pglimit.limits.carries_until is
    'as open_until, while counters are to be carried over a change (see limit_carries); purge '
    'makes it null once it has passed, for speed alone';
comment on column pglimit.limits.plain is
    'whether hit''s straight way serves its open windows: one column to read there, and one if';
comment on column pglimit.limits.straight_us is
    'per in microseconds, where a straight way of sliding_window or token_bucket serves it; of a '
    'calendar 0; null for the others';
comment on column pglimit.limits.straight_burst is
    'of a token_bucket what it holds, null for the others: tells the straight ways apart';
comment on column pglimit.limits.straight_fill is
    'of a token_bucket how long it takes to fill: more is only lacking where the clock went back';
comment on column pglimit.limits.limit_version is
    'grows with every change of any limit or endpoint and is never used twice';
