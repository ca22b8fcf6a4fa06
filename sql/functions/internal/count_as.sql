-- What an open counter is when it goes on by another algorithm: as much is used as before. Of a
-- token bucket that is what it lacks, of a sliding window what is counted of both windows, rounded
-- up. `until` is the counter's end, `quota` and `per` are those it goes on with. Writes nothing.
create or replace function pglimit._count_as(
    algorithm text,
    counter pglimit.counter_state,
    until timestamptz,
    quota bigint,
    per interval,
    present timestamptz,
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
    v_left numeric := extract(epoch from _count_as.until - _count_as.present) * 1000000;
    v_elapsed numeric := extract(
        epoch from _count_as.present - _count_as.counter.window_start) * 1000000;
    v_used numeric;
begin
    v_used := case _count_as.counter.algorithm
        when 'token_bucket' then ceil(
            v_left * _count_as.counter.previous / (extract(
                epoch from _count_as.until - _count_as.counter.window_start) * 1000000))
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
            used := 0;
            previous := greatest(_count_as.quota, 1);
            -- no later than a bucket's debt may end (see _hit_special), or no timestamp holds it
            reset_at := _count_as.present + make_interval(secs => (least(
                ceil(v_used * v_length / previous), 300000000000000000
            ) / 1000000)::double precision);
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
    text, pglimit.counter_state, timestamptz, bigint, interval, timestamptz) is
    'internal: what an open counter is when it goes on by another algorithm';

revoke all on function pglimit._count_as(
    text, pglimit.counter_state, timestamptz, bigint, interval, timestamptz) from public;
