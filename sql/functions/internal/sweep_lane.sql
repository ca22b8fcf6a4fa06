-- Visits the dead turns of a lane from `since` to before `present`, so that their index entries are
-- marked dead. A lookup reads every entry of its lane on an index page; those marked are passed
-- over and their room is used again. Nothing else would mark them, for a lookup stops at the newest
-- row. They are visited again by whoever reads the lane before its next hand-over; marked ones cost
-- nothing then, and while a snapshot is held there are eight. Writes nothing.
create or replace function pglimit._sweep_lane(
    pool text,
    lane integer,
    since bigint,
    present bigint
)
returns void
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
begin
    perform
    from pglimit.permits p
    where p.pool = _sweep_lane.pool
        and p.lane = _sweep_lane.lane
        and p.turn >= _sweep_lane.since
        and p.turn < _sweep_lane.present;
end
$$;

comment on function pglimit._sweep_lane(text, integer, bigint, bigint) is
    'internal: has the index entries of a lane''s dead turns marked as dead';

revoke all on function pglimit._sweep_lane(text, integer, bigint, bigint) from public;
