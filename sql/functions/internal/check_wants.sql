-- Names what is wrong with the form of what admit is asked for; returns when nothing is: then it
-- can be read as a record. What its values may be, _check_hit and _check_claim say. An interval
-- that is not written in the usual way is tried in a subtransaction, which has no number, as it
-- writes nothing. Writes nothing.
create or replace function pglimit._check_wants(wants jsonb)
returns void
language plpgsql
stable
parallel safe
called on null input
security invoker
as $$
declare
    v_want jsonb;
    v_place integer := 0;
    v_rate constant text[] := array[
        'limit', 'subject', 'cost', 'max_hits', 'per', 'algorithm', 'burst'];
    v_permit constant text[] := array[
        'endpoint', 'holder', 'weight', 'holder_cap', 'endpoint_cap', 'installation_cap', 'lease',
        'note'];
    v_texts constant text[] := array[
        'limit', 'subject', 'endpoint', 'holder', 'algorithm', 'per', 'lease'];
    v_numbers constant text[] := array[
        'cost', 'max_hits', 'burst', 'weight', 'holder_cap', 'endpoint_cap', 'installation_cap'];
    v_name text;
    v_length text;
begin
    if jsonb_typeof(wants) is distinct from 'array' or jsonb_array_length(wants) > 100 then
        raise exception using
            errcode = 'PGL01',
            message = case
                when jsonb_typeof(wants) = 'array'
                then format('%s wants are too many', jsonb_array_length(wants))
                else 'wants is no array'
            end,
            detail = 'It is a JSON array of 100 wants at most.',
            hint = 'Pass ''[{"limit": "api", "subject": "ann"}, '
                || '{"endpoint": "export", "holder": "ann"}]''.';
    end if;
    for v_want in select e.value from jsonb_array_elements(wants) e loop
        v_place := v_place + 1;
        v_name := null;
        if jsonb_typeof(v_want) = 'object' then
            select k.name into v_name
            from jsonb_object_keys(v_want) k (name)
            where k.name <> all (case when v_want ? 'limit' then v_rate else v_permit end);
            -- a bare number would be taken for seconds, and an object for a name
            if v_name is null then
                select k.name into v_name
                from jsonb_each(v_want) k (name, value)
                where k.name = any (v_texts) and jsonb_typeof(k.value) not in ('string', 'null');
                if found then
                    raise exception using
                        errcode = 'PGL01',
                        message = format('want %s has a %s that is no string', v_place, v_name),
                        detail = format('Strings are %s.', array_to_string(v_texts, ', ')),
                        hint = 'Quote it: {"limit": "api", "subject": "7", "per": "1 minute"}.';
                end if;
                select k.name into v_name
                from jsonb_each(v_want) k (name, value)
                where k.name = any (v_numbers)
                    and not case jsonb_typeof(k.value)
                        when 'null' then true
                        when 'number' then k.value::text ~ '^-?[0-9]+$'
                            and k.value::numeric between -9223372036854775808
                                and 9223372036854775807
                        else false
                    end;
                if found then
                    raise exception using
                        errcode = 'PGL01',
                        message = format('want %s has a %s that is no whole number',
                            v_place, v_name),
                        detail = format('Numbers are %s, each of 64 bits at most.',
                            array_to_string(v_numbers, ', ')),
                        hint = 'Write it without quotes, point or exponent, such as '
                            || '{"limit": "api", "subject": "ann", "cost": 2}.';
                end if;
                foreach v_name in array array['per', 'lease'] loop
                    v_length := v_want ->> v_name;
                    continue when coalesce(
                        v_length
                            ~ '^([0-9]{1,9} (second|minute|hour|day)s?|[0-9]{1,17} microseconds)$',
                        true);
                    begin
                        perform v_length::interval;
                    exception
                        when data_exception then
                            raise exception using
                                errcode = 'PGL01',
                                message = format('want %s has a %s that is no interval: %s',
                                    v_place, v_name, quote_literal(left(v_length, 100))),
                                detail = 'It is a time as PostgreSQL writes one.',
                                hint = 'Write it as ''30 seconds'' or ''1 minute''.';
                    end;
                end loop;
                v_name := null;
            end if;
        end if;
        if v_name is not null or jsonb_typeof(v_want) <> 'object'
            or (v_want ? 'limit') = (v_want ? 'endpoint')
        then
            raise exception using
                errcode = 'PGL01',
                message = case
                    when v_name is null then format('want %s has no limit or endpoint', v_place)
                    else format('want %s has a field %s', v_place, quote_literal(left(v_name, 100)))
                end,
                detail = format('A want of a rate has the fields %s; of a permit %s.',
                    array_to_string(v_rate, ', '), array_to_string(v_permit, ', ')),
                hint = 'Name a limit and a subject, or an endpoint and a holder.';
        end if;
    end loop;
end
$$;

comment on function pglimit._check_wants(jsonb) is
    'internal: raises PGL01 for what is no list of wants';

revoke all on function pglimit._check_wants(jsonb) from public;
