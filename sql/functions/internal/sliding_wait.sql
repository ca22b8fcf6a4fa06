-- How long until a sliding window has `room` left for what came before: `used` hits in the present
-- window of `length` microseconds, of which `elapsed` have gone by, and `previous` in the one
-- before, of which a part counts that shrinks to nothing at the present one's end. Rounded up to a
-- microsecond. Writes nothing.
create or replace function pglimit._sliding_wait(
    previous bigint,
    used bigint,
    room bigint,
    length numeric,
    elapsed numeric
)
returns interval
language plpgsql
immutable
parallel safe
called on null input
security invoker
as $$
declare
    v_wait numeric;
begin
    if used <= room then
        v_wait := ceil(length - (room - used) * length / greatest(previous, 1)) - elapsed;
    else
        -- the next window's way, once this one is the one before
        v_wait := length - elapsed + greatest(ceil(length - room * length / used), 0);
    end if;
    return greatest(make_interval(secs => (v_wait / 1000000)::double precision),
        interval '1 microsecond');
end
$$;

comment on function pglimit._sliding_wait(bigint, bigint, bigint, numeric, numeric) is
    'internal: how long until a sliding window has room';

revoke all on function pglimit._sliding_wait(bigint, bigint, bigint, numeric, numeric) from public;
