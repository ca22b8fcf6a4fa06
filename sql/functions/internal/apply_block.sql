-- Writes a block and stamps the counters it is for, so that hits look for it: for every limit those
-- of all names that the tenant has counted, found by one index descent a name. The caller holds
-- _lock_block. Writes: blocks, counters. Locks: the block, then the subject's newest counters in
-- the order of their keys.
create or replace function pglimit._apply_block(
    limit_name text,
    subject text,
    tenant text,
    blocked_until timestamptz,
    forget_at timestamptz,
    strikes bigint,
    why text,
    function_name text
)
returns void
language plpgsql
volatile
parallel unsafe
called on null input
security invoker
as $$
#variable_conflict use_column
declare
    v_name text := _apply_block.limit_name;
    v_after text := _apply_block.tenant || e'\x1f';
    v_end constant text := _apply_block.tenant || e'\x20';
begin
    -- a block that was answered outlives a crash, whatever the session says
    perform set_config('synchronous_commit', 'on', true)
    where current_setting('synchronous_commit') <> 'remote_apply';
    insert into pglimit.blocks as b (
        tenant, limit_name, subject, blocked_until, forget_at, strikes, why, updated_at, updated_by)
    values (
        _apply_block.tenant, _apply_block.limit_name, _apply_block.subject,
        _apply_block.blocked_until, _apply_block.forget_at, _apply_block.strikes,
        _apply_block.why, clock_timestamp(), session_user)
    on conflict on constraint blocks_pkey do update
    set blocked_until = excluded.blocked_until,
        forget_at = excluded.forget_at,
        strikes = excluded.strikes,
        why = excluded.why,
        updated_at = excluded.updated_at,
        updated_by = excluded.updated_by;
    if v_name <> '*' then
        perform pglimit._stamp_counter(
            format(e'%s\x1f%s\x1f%s', _apply_block.tenant, v_name, _apply_block.subject),
            _apply_block.function_name);
        return;
    end if;
    loop
        select split_part(c.key, e'\x1f', 2)
        into v_name
        from pglimit.counters c
        where c.key > v_after and c.key < v_end
        order by c.key
        limit 1;
        exit when not found;
        perform pglimit._stamp_counter(
            format(e'%s\x1f%s\x1f%s', _apply_block.tenant, v_name, _apply_block.subject),
            _apply_block.function_name);
        -- behind all keys of this limit: 0x20 comes after the separator, 0x1f
        v_after := format(e'%s\x1f%s\x20', _apply_block.tenant, v_name);
    end loop;
end
$$;

comment on function pglimit._apply_block(
    text, text, text, timestamptz, timestamptz, bigint, text, text) is
    'internal: writes a block and stamps the counters it is for';

revoke all on function pglimit._apply_block(
    text, text, text, timestamptz, timestamptz, bigint, text, text) from public;
