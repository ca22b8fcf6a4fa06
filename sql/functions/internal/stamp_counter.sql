-- Stamps the newest counter of a key, so that its next hits look for an override and a block. Also
-- where it is stamped already: a hit that holds the row may be about to take the stamp off, as what
-- it was for is over. Writes: counters. Locks: that row, to the end of the transaction. The caller
-- holds what keeps others from making a row for the key: see set_limit_override and _apply_block.
create or replace function pglimit._stamp_counter(key text, function_name text)
returns void
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_turn bigint;
begin
    for v_attempt in 1..1000 loop
        select c.turn
        into v_turn
        from pglimit.counters c
        where c.key = _stamp_counter.key
        order by c.turn desc
        limit 1;
        if not found then
            return;
        end if;
        update pglimit.counters c
        set turn = case
                when c.changes < 64 then c.turn
                else greatest(
                    c.turn + 1, (date_part('epoch', clock_timestamp()) * 1000000)::bigint)
            end,
            changes = case when c.changes < 64 then c.changes + 1 else 0 end,
            overridden = true,
            reset_at = null,
            special_reset_at = coalesce(c.reset_at, c.special_reset_at)
        where c.key = _stamp_counter.key and c.turn = v_turn;
        if found then
            return;
        end if;
    end loop;
    raise exception using
        errcode = '55P03',
        message = format('%s on limit %s lost every race', _stamp_counter.function_name,
            quote_literal(split_part(_stamp_counter.key, e'\x1f', 2))),
        detail = 'Other sessions changed the count between each look and its update.',
        hint = 'Try again.';
end
$$;

comment on function pglimit._stamp_counter(text, text) is
    'internal: makes the next hits of a key look for an override and a block';

revoke all on function pglimit._stamp_counter(text, text) from public;
