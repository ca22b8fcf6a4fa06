-- Names what is wrong with the arrays of hit_many; returns when nothing is. Writes nothing.
create or replace function pglimit._check_arrays(
    limit_names text[],
    subjects text[],
    costs bigint[],
    max_hits bigint[],
    pers interval[]
)
returns void
language plpgsql
immutable
parallel safe
called on null input
security invoker
as $$
declare
    v_count integer := cardinality(limit_names);
begin
    if limit_names is null or subjects is null then
        raise exception using
            errcode = 'PGL01',
            message = case when limit_names is null then 'limit_names' else 'subjects' end
                || ' is null',
            detail = 'Each hit has a limit and a subject, at the same place of the two arrays.',
            hint = 'Pass limit_names => array[''api'', ''api''], subjects => array[''a'', ''b''].';
    end if;
    if v_count > 1000 then
        raise exception using
            errcode = 'PGL01',
            message = format('%s hits are too many', v_count),
            detail = 'One call decides 1,000 at most, for it keeps its locks to the end.',
            hint = 'Make several calls, each in a transaction of its own.';
    end if;
    if cardinality(subjects) <> v_count
        or cardinality(costs) <> v_count
        or cardinality(max_hits) <> v_count
        or cardinality(pers) <> v_count
    then
        raise exception using
            errcode = 'PGL01',
            message = 'the arrays differ in length',
            detail = format(
                'limit_names has %s elements, subjects %s, costs %s, max_hits %s, pers %s.',
                v_count,
                cardinality(subjects),
                coalesce(cardinality(costs)::text, 'none'),
                coalesce(cardinality(max_hits)::text, 'none'),
                coalesce(cardinality(pers)::text, 'none')),
            hint = 'Give each array an element for each hit, null where the limit''s row is to '
                || 'say it; or leave costs, max_hits or pers out.';
    end if;
    if array_ndims(limit_names) > 1
        or array_ndims(subjects) > 1
        or array_ndims(costs) > 1
        or array_ndims(max_hits) > 1
        or array_ndims(pers) > 1
        or array_lower(limit_names, 1) <> 1
        or array_lower(subjects, 1) <> 1
        or array_lower(costs, 1) <> 1
        or array_lower(max_hits, 1) <> 1
        or array_lower(pers, 1) <> 1
    then
        raise exception using
            errcode = 'PGL01',
            message = 'an array is no plain list',
            detail = 'It has several dimensions, or does not begin at 1.',
            hint = 'Pass arrays like array[''a'', ''b''].';
    end if;
end
$$;

comment on function pglimit._check_arrays(text[], text[], bigint[], bigint[], interval[]) is
    'internal: raises PGL01 for arrays that hit_many cannot serve';

revoke all on function pglimit._check_arrays(text[], text[], bigint[], bigint[], interval[])
    from public;
