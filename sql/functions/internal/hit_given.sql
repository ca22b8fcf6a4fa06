-- hit's straight way of a sliding_window or a token_bucket that the call brings whole: makes the
-- numbers that a limit's row has at hand, and has them decided; null where a straight way does not
-- serve, also for arguments that are wrong, and the caller is to check them. Days are 24 h, as
-- everywhere, and not the session's; months have no fixed length. Writes and locks: see
-- _hit_sliding and _hit_bucket.
create or replace function pglimit._hit_given(
    key text,
    cost bigint,
    max_hits bigint,
    per interval,
    algorithm text,
    burst bigint
)
returns pglimit.hit_row
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
declare
    v_burst bigint := coalesce(burst, max_hits);
    v_us bigint;
begin
    if (
        per > '0 s'
        and per < '30 days'
        and substr(interval_send(per), 13) = e'\\x00000000'
        and max_hits > 0
    ) is not true then
        return null;
    end if;
    v_us := (date_part('epoch', per) * 1000000)::bigint;
    per := make_interval(secs => date_part('epoch', per));
    -- as of limits.straight_us; 100 times 30 days are less than what a double counts exactly
    if greatest(max_hits, v_burst) >= 2000000000000000000 / v_us or v_burst / 100 > max_hits then
        return null;
    end if;
    if algorithm = 'token_bucket' then
        return pglimit._hit_bucket(
            key, cost, max_hits, v_burst, per, v_us,
            make_interval(secs => ceil(v_us::double precision * v_burst / max_hits) / 1000000),
            null, null, pglimit._counted_by(max_hits, v_us, v_burst));
    elsif algorithm = 'sliding_window' and burst is null then
        return pglimit._hit_sliding(
            key, cost, max_hits, per, v_us, null, null,
            pglimit._counted_by(max_hits, v_us, null));
    end if;
    return null;
end
$$;

comment on function pglimit._hit_given(text, bigint, bigint, interval, text, bigint) is
    'internal: a hit of a sliding_window or token_bucket of the call; null where it does not serve';

revoke all on function pglimit._hit_given(text, bigint, bigint, interval, text, bigint) from public;
