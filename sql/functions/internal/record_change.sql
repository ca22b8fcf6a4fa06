-- Records a change in the transaction that makes it. `before` and `after` are rows as jsonb; what
-- is no part of the definition (its key, its version, who set it, what follows from the rest) is
-- taken out here. `version` is
-- that of a limit or an endpoint that was set; others draw one. Writes: changes, limit_versions.
-- Locks nothing that anybody else could want.
create or replace function pglimit._record_change(
    action text,
    tenant text,
    name text,
    before jsonb,
    after jsonb,
    why text default null,
    version bigint default null
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
    v_other text[] := array[
        'tenant', 'limit_name', 'endpoint', 'limit_version', 'updated_at', 'updated_by',
        'overridden', 'special', 'plain', 'straight_us', 'straight_burst', 'straight_fill',
        'open_until', 'carries_until'];
begin
    insert into pglimit.changes (
        version, changed_at, changed_by, action, tenant, name, before, after, why)
    values (
        coalesce(_record_change.version, nextval('pglimit.limit_versions')),
        clock_timestamp(),
        session_user,
        _record_change.action,
        _record_change.tenant,
        _record_change.name,
        _record_change.before - v_other,
        _record_change.after - v_other,
        _record_change.why);
end
$$;

comment on function pglimit._record_change(text, text, text, jsonb, jsonb, text, bigint) is
    'internal: records a change in the transaction that makes it';

revoke all on function pglimit._record_change(text, text, text, jsonb, jsonb, text, bigint)
from public;
