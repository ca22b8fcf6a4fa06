-- What an open counter is when it goes on in another way: by another algorithm, as a bucket of
-- another rate, or carried over changes of its limit. As much is used as before, times to_hits[i]
-- over from_hits[i], rounded up, for each i in turn. Of a token bucket that is what it lacks, of a
-- sliding window what is counted of both windows, rounded up. `until` is the counter's end, `quota`
-- and `per` are those it goes on with. Writes nothing.
-- A refusal writes nothing, and so this is done again at the next call: it says the same then as if
-- it had been written. A bucket leaks at its old rate up to `since`, is changed then, and leaks at
-- the new rate from then on; each of two sliding windows is scaled for itself. Of a bucket that
-- only changes its rate parts of hits are kept, so that callers who take turns with two rates do
-- not round up each time.
create or replace function pglimit._count_as(
    algorithm text,
    counter pglimit.counter_state,
    until timestamptz,
    quota bigint,
    per interval,
    present timestamptz,
    since timestamptz,
    from_hits bigint[],
    to_hits bigint[],
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
    v_from text := coalesce(_count_as.counter.algorithm, 'fixed_window');
    v_length numeric := extract(epoch from _count_as.per) * 1000000;
    v_elapsed numeric := extract(
        epoch from _count_as.present - _count_as.counter.window_start) * 1000000;
    v_old_length numeric;
    v_level numeric;
    v_used numeric := _count_as.counter.used;
    v_over numeric;
    v_previous numeric := coalesce(_count_as.counter.previous, 0);
begin
    if v_from = 'token_bucket' then
        v_old_length := extract(
            epoch from _count_as.until - _count_as.counter.window_start) * 1000000;
        -- in microseconds times hits of the old rate
        v_level := greatest(
            extract(epoch from _count_as.until - _count_as.since) * 1000000 * v_previous - v_used,
            0);
        -- up; a quotient may be rounded down
        v_used := div(v_level + v_old_length - 1, v_old_length);
        -- the same hits, in microseconds times hits of the new rate
        v_level := div(v_level * v_length + v_old_length - 1, v_old_length);
    elsif v_from = 'sliding_window' and _count_as.algorithm <> 'sliding_window' then
        v_used := case
            when v_elapsed >= 2 * v_length then 0
            when v_elapsed >= v_length then ceil(v_used * (2 * v_length - v_elapsed) / v_length)
            else v_used + ceil(v_previous * (v_length - v_elapsed) / v_length)
        end;
    end if;
    for v_number in 1..coalesce(cardinality(_count_as.from_hits), 0) loop
        v_over := _count_as.from_hits[v_number];
        v_used := div(v_used * _count_as.to_hits[v_number] + v_over - 1, v_over);
        v_previous := div(v_previous * _count_as.to_hits[v_number] + v_over - 1, v_over);
        v_over := v_over * v_length;
        v_level := v_length * div(v_level * _count_as.to_hits[v_number] + v_over - 1, v_over);
    end loop;
    used := least(v_used, 9223372036854775807);
    window_start := _count_as.present;
    case
        when _count_as.algorithm = 'token_bucket' then
            previous := greatest(_count_as.quota, 1);
            v_level := case v_from
                when 'token_bucket' then greatest(
                    v_level - previous * extract(
                        epoch from _count_as.present - _count_as.since) * 1000000,
                    0)
                else v_used * v_length
            end;
            -- no later than a bucket's debt may end (see _hit_special), or no timestamp holds it
            v_level := least(v_level, 300000000000000000 * previous::numeric);
            v_over := div(v_level + previous - 1, previous);
            reset_at := _count_as.present + make_interval(
                secs => (v_over / 1000000)::double precision);
            used := v_over * previous - v_level;
            window_start := reset_at - _count_as.per;
        when _count_as.algorithm <> 'sliding_window' then
            window_start := least(_count_as.counter.window_start, _count_as.present);
            reset_at := _count_as.until;
        when v_from = 'sliding_window' then
            previous := least(v_previous, 9223372036854775807);
            window_start := _count_as.counter.window_start;
            reset_at := _count_as.until;
        else
            previous := 0;
            reset_at := _count_as.present + _count_as.per;
    end case;
end
$$;

comment on function pglimit._count_as(
    text, pglimit.counter_state, timestamptz, bigint, interval, timestamptz, timestamptz, bigint[],
    bigint[]) is
    'internal: what an open counter is when it goes on in another way';

revoke all on function pglimit._count_as(
    text, pglimit.counter_state, timestamptz, bigint, interval, timestamptz, timestamptz, bigint[],
    bigint[]) from public;
