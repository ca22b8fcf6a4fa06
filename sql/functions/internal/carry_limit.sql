-- Notes what becomes of the counts of a limit whose row was just replaced or made, `old` by `new`;
-- old is null where there was none. Then the row of tenant '' has ruled the tenant, if there is
-- one: what was still to be carried for that goes on under the new row. Counters are not visited:
-- how long the longest of them may be open bounds how long this is remembered. A bucket is open for
-- as long as it is not full; ten fillings are waited for, so debt deeper than nine times its
-- capacity may outlive the change, if nobody asks in all that time, and then stays.
-- Writes: limits (the row), limit_carries. Locks: none, the caller has the row's.
create or replace function pglimit._carry_limit(
    old pglimit.limits,
    new pglimit.limits,
    carry text
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
    v_made boolean := _carry_limit.old.limit_name is null;
    v_rule pglimit.limits;
    v_until timestamptz;
    v_from bigint;
    v_to bigint;
begin
    if v_made and _carry_limit.new.tenant <> '' then
        select l.* into _carry_limit.old
        from pglimit.limits l
        where l.tenant = '' and l.limit_name = _carry_limit.new.limit_name;
        if found then
            -- what was to be carried for a row of the tenant that was dropped before is of then
            delete from pglimit.limit_carries c
            where c.tenant = _carry_limit.new.tenant
                and c.limit_name = _carry_limit.new.limit_name;
        end if;
        insert into pglimit.limit_carries (
            tenant, limit_name, limit_version, changed_at, from_hits, to_hits, carries_until)
        select
            _carry_limit.new.tenant, c.limit_name, c.limit_version, c.changed_at, c.from_hits,
            c.to_hits, c.carries_until
        from pglimit.limit_carries c
        where c.tenant = ''
            and c.limit_name = _carry_limit.new.limit_name
            and c.carries_until > _carry_limit.new.updated_at
            and c.limit_version < _carry_limit.new.limit_version
        on conflict on constraint limit_carries_pkey do nothing;
    end if;
    v_rule := case
        when _carry_limit.old.limit_name is null then _carry_limit.new
        else _carry_limit.old
    end;
    v_until := greatest(
        v_rule.open_until,
        _carry_limit.new.updated_at + case v_rule.algorithm
            when 'calendar' then v_rule.per + interval '1 day'
            when 'token_bucket' then make_interval(secs => least(
                10 * extract(epoch from v_rule.per) * ceil(
                    coalesce(v_rule.burst, v_rule.max_hits)::numeric
                    / greatest(v_rule.max_hits, 1)),
                extract(epoch from interval '36525 days'))::double precision)
            else v_rule.per
        end);
    -- a bucket that lets nothing by holds nothing. Nor is there a proportion to 0: all that is used
    -- would be forgotten, and given anew once the limit is opened again
    v_from := case
        when _carry_limit.old.max_hits > 0
            then coalesce(_carry_limit.old.burst, _carry_limit.old.max_hits)
    end;
    v_to := case
        when _carry_limit.new.max_hits > 0
            then coalesce(_carry_limit.new.burst, _carry_limit.new.max_hits)
    end;
    if carry = 'reset' then
        -- whatever was to be done to counters of before is done by this
        delete from pglimit.limit_carries c
        where c.tenant = _carry_limit.new.tenant and c.limit_name = _carry_limit.new.limit_name;
    end if;
    if carry = 'reset' or carry = 'proportional' and v_from <> v_to then
        insert into pglimit.limit_carries (
            tenant, limit_name, limit_version, changed_at, from_hits, to_hits, carries_until)
        values (
            _carry_limit.new.tenant, _carry_limit.new.limit_name, _carry_limit.new.limit_version,
            _carry_limit.new.updated_at,
            case when carry = 'proportional' then v_from end,
            case when carry = 'proportional' then v_to end,
            v_until);
    end if;
    update pglimit.limits l
    set open_until = v_until,
        carries_until = (
            select max(c.carries_until)
            from pglimit.limit_carries c
            where c.tenant = _carry_limit.new.tenant
                and c.limit_name = _carry_limit.new.limit_name
                and c.carries_until > _carry_limit.new.updated_at)
    where l.tenant = _carry_limit.new.tenant and l.limit_name = _carry_limit.new.limit_name;
end
$$;

comment on function pglimit._carry_limit(pglimit.limits, pglimit.limits, text) is
    'internal: notes what becomes of the counts of a limit that was changed';

revoke all on function pglimit._carry_limit(pglimit.limits, pglimit.limits, text) from public;
