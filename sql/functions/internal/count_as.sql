-- What an open counter is when it goes on in another way, by another algorithm or as a bucket of
-- another rate: as much is used as before. Of a token bucket that is what it lacks, of a sliding
-- window what is counted of both windows, rounded up. `until` is the counter's end, `quota` and
-- `per` are those it goes on with. Writes nothing.
-- A bucket leaks at its old rate up to `since` and at the new one from then on, also where nothing
-- is written for long, as refusals write nothing: what it is told to wait is right then. Its hits
-- are kept in parts, so that callers who take turns with two rates do not round up each time.
create or replace function pglimit._count_as(
    algorithm text,
    counter pglimit.counter_state,
    until timestamptz,
    quota bigint,
    per interval,
    present timestamptz,
    since timestamptz,
    out used bigint,
    out previous bigint,
    out window_start timestamptz,
    out reset_at timestamptz
)
returns record
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
declare
    v_length numeric := extract(epoch from _count_as.per) * 1000000;
    v_elapsed numeric := extract(
        epoch from _count_as.present - _count_as.counter.window_start) * 1000000;
    v_old_length numeric;
    v_level numeric;
    v_used numeric;
begin
    if _count_as.counter.algorithm = 'token_bucket' then
        v_old_length := extract(
            epoch from _count_as.until - _count_as.counter.window_start) * 1000000;
        -- in microseconds times hits of the old rate
        v_level := greatest(
            extract(epoch from _count_as.until - _count_as.since) * 1000000
                * _count_as.counter.previous - _count_as.counter.used,
            0);
    end if;
    v_used := case _count_as.counter.algorithm
        when 'token_bucket' then ceil(v_level / v_old_length)
        when 'sliding_window' then case
            when v_elapsed >= 2 * v_length then 0
            when v_elapsed >= v_length then
                ceil(_count_as.counter.used * (2 * v_length - v_elapsed) / v_length)
            else _count_as.counter.used + ceil(
                coalesce(_count_as.counter.previous, 0) * (v_length - v_elapsed) / v_length)
        end
        else _count_as.counter.used
    end;
    window_start := _count_as.present;
    case _count_as.algorithm
        when 'token_bucket' then
            previous := greatest(_count_as.quota, 1);
            -- in microseconds times hits of the new rate
            v_level := case
                when _count_as.counter.algorithm = 'token_bucket' then greatest(
                    ceil(v_level * v_length / v_old_length) - previous * extract(
                        epoch from _count_as.present - _count_as.since) * 1000000,
                    0)
                else v_used * v_length
            end;
            v_level := least(v_level, 300000000000000000 * previous::numeric);
            reset_at := _count_as.present + make_interval(secs => (
                ceil(v_level / previous) / 1000000)::double precision);
            used := ceil(v_level / previous) * previous - v_level;
            window_start := reset_at - _count_as.per;
        when 'sliding_window' then
            used := least(v_used, 9223372036854775807);
            previous := 0;
            reset_at := _count_as.present + _count_as.per;
        else
            used := least(v_used, 9223372036854775807);
            window_start := least(_count_as.counter.window_start, _count_as.present);
            reset_at := _count_as.until;
    end case;
end
$$;

comment on function pglimit._count_as(
    text, pglimit.counter_state, timestamptz, bigint, interval, timestamptz, timestamptz) is
    'internal: what an open counter is when it goes on in another way';

revoke all on function pglimit._count_as(
    text, pglimit.counter_state, timestamptz, bigint, interval, timestamptz, timestamptz)
from public;
