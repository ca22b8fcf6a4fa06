-- Decides those hits of a hit_many that lost a race, by what their rows are now. The caller has
-- waited for each of these rows and so has it locked: most are charged by one statement, with a
-- fresh snapshot; the rest (refused now, ended, stamped meanwhile) goes to _hit_special, in the
-- order given. `places` are those of the hits in the arrays, `quotas` what holds at each of them.
-- Answers at the same places; on_outage and limit_version are null where the caller knows them.
-- Writes: counters. Locks: nothing that is not locked, see _hit_special for what ends meanwhile.
create or replace function pglimit._hit_again(
    limit_names text[],
    subjects text[],
    costs bigint[],
    max_hits bigint[],
    pers interval[],
    tenant text,
    places integer[],
    quotas bigint[]
)
returns pglimit.hit_row[]
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_answers pglimit.hit_row[];
    v_place integer;
    v_done record;
begin
    for v_done in
        update pglimit.counters c
        set turn = case
                when c.changes < 64 then c.turn
                else greatest(c.turn + 1, (date_part('epoch', clock_timestamp()) * 1000000)::bigint)
            end,
            changes = case when c.changes < 64 then c.changes + 1 else 0 end,
            used = c.used + k.cost
        from (
            select p.place, p.quota, n.tid, coalesce(_hit_again.costs[p.place], 1) as cost
            from unnest(_hit_again.places, _hit_again.quotas) p (place, quota)
            cross join lateral (
                select r.ctid as tid
                from pglimit.counters r
                where r.key = _hit_again.tenant || e'\x1f' || _hit_again.limit_names[p.place]
                    || e'\x1f' || _hit_again.subjects[p.place] collate "C"
                order by r.turn desc
                limit 1
            ) n
            offset 0
        ) k
        where c.ctid = k.tid
            and c.reset_at > clock_timestamp()
            and c.used <= k.quota - k.cost
        returning k.place, k.quota, k.cost, k.quota - c.used as remaining, c.reset_at
    loop
        v_answers[v_done.place] := row(
            true, 'allowed', v_done.quota, v_done.remaining, null, v_done.reset_at, null, null,
            v_done.cost)::pglimit.hit_row;
    end loop;
    foreach v_place in array _hit_again.places loop
        continue when (v_answers[v_place]).allowed;
        v_answers[v_place] := pglimit._hit_special(
            _hit_again.limit_names[v_place], _hit_again.subjects[v_place],
            _hit_again.max_hits[v_place], _hit_again.pers[v_place],
            coalesce(_hit_again.costs[v_place], 1), null, null, _hit_again.tenant);
    end loop;
    return v_answers;
end
$$;

comment on function pglimit._hit_again(
    text[], text[], bigint[], bigint[], interval[], text, integer[], bigint[]) is
    'internal: decides hits of hit_many whose rows have changed while it waited';

revoke all on function pglimit._hit_again(
    text[], text[], bigint[], bigint[], interval[], text, integer[], bigint[]) from public;
