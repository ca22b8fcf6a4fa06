-- What a hit of `cost` would be answered now; the limit is already looked up and checked.
-- Writes and locks nothing.
create or replace function pglimit._look(
    tenant text,
    limit_name text,
    subject text,
    max_hits bigint,
    cost bigint,
    on_outage text,
    limit_version bigint
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
    v_now timestamptz;
    v_used bigint;
    v_reset timestamptz;
begin
    select c.used, c.reset_at
    into v_used, v_reset
    from pglimit.counters c
    where c.key = _look.tenant || e'\x1f' || _look.limit_name || e'\x1f' || _look.subject
    order by c.turn desc
    limit 1;
    v_now := clock_timestamp();
    if v_reset is null or v_reset <= v_now then
        v_used := 0;
        v_reset := null;
    end if;
    return row(
        cost <= max_hits - v_used,
        case
            when cost > max_hits then 'never'
            when cost > max_hits - v_used then 'limit'
            else 'allowed'
        end,
        max_hits,
        greatest(max_hits - v_used, 0),
        case when cost <= max_hits and cost > max_hits - v_used then v_reset - v_now end,
        v_reset,
        on_outage,
        limit_version)::pglimit.hit_row;
end
$$;

comment on function pglimit._look(text, text, text, bigint, bigint, text, bigint) is
    'internal: what a hit would be answered now, without recording it';

revoke all on function pglimit._look(text, text, text, bigint, bigint, text, bigint) from public;
