-- Who may call what, in one screen; the only file with grants. Everything is revoked first, also
-- what somebody granted by hand. Tables and sequences have no grants at all.
do $$
declare
    v_row record;
begin
    for v_row in
        select distinct p.oid::regprocedure as signature, x.grantee
        from pg_catalog.pg_proc p
        cross join pg_catalog.aclexplode(p.proacl) x
        where p.pronamespace = 'pglimit'::regnamespace and x.grantee <> p.proowner
    loop
        execute pg_catalog.format(
            'revoke all on function %s from %s cascade',
            v_row.signature,
            case when v_row.grantee = 0 then 'public' else v_row.grantee::regrole::text end);
    end loop;
end
$$;

grant usage on schema pglimit to pglimit_app, pglimit_operator, pglimit_monitor;

-- what a service calls
grant execute on function
    pglimit.admit(jsonb, text),
    pglimit.claim_permit(
        text, text, bigint, bigint, bigint, interval, bigint, text, jsonb, text, bigint),
    pglimit.enqueue_permit(
        text, text, bigint, bigint, bigint, interval, bigint, interval, jsonb, text),
    pglimit.poll_ticket(bigint),
    pglimit.renew_permit(bigint, interval),
    pglimit.reassert_permit(
        bigint, text, text, bigint, bigint, bigint, interval, bigint, jsonb, text),
    pglimit.hit(text, text, bigint, interval, bigint, text, bigint, text),
    pglimit.check_sign_in(text, text, text),
    pglimit.sign_in_failed(text, text, text),
    pglimit.sign_in_succeeded(text, text, text),
    pglimit.heartbeat_replica(text, text, interval),
    pglimit.strike(text, text, interval, double precision, interval, interval, text, text),
    pglimit.hit_up_to(
        text, text, bigint, bigint, bigint, interval, text, bigint, text),
    pglimit.charge(
        text, text, bigint, bigint, text, bigint, interval, text, bigint),
    pglimit.refund(text, text, bigint, text, bigint, interval, text, bigint),
    pglimit.hold(
        text, text, bigint, interval, bigint, interval, text, bigint, text),
    pglimit.settle(bigint, bigint),
    pglimit.hit_many(text[], text[], bigint[], bigint[], interval[], text)
to pglimit_app;

-- what a service and an operator call
grant execute on function
    pglimit.forget(text, text, text),
    pglimit.pause(text, text, interval, timestamptz, text, text),
    pglimit.release_permit(bigint, text)
to pglimit_app, pglimit_operator;

-- what everybody may see
grant execute on function
    pglimit.peek(text, text, bigint, interval, bigint, text, bigint, text),
    pglimit.pglimit_version()
to pglimit_app, pglimit_operator, pglimit_monitor;

-- what shows keys, and the state of it all
grant execute on function
    pglimit.doctor(interval, interval),
    pglimit.explain_limit(text, text, text),
    pglimit.list_blocks(text, text, text, integer, text, inet),
    pglimit.list_changes(text, bigint, integer, text, text),
    pglimit.list_counters(text, text, text, integer, text, boolean),
    pglimit.list_endpoint_overrides(text, text, text, integer, text),
    pglimit.list_endpoints(text, text, integer, text),
    pglimit.list_holds(text, text, bigint, integer, text, text),
    pglimit.list_limit_overrides(text, text, text, integer, text),
    pglimit.list_limits(text, text, integer, text),
    pglimit.list_permits(
        text, text, bigint, integer, text, boolean, interval, interval),
    pglimit.show_installation(),
    pglimit.show_sign_in(text, text, text)
to pglimit_operator, pglimit_monitor;

-- what an operator changes
grant execute on function
    pglimit.block(text, text, interval, text, text),
    pglimit.block_range(text, inet, interval, text, text),
    pglimit.drop_endpoint(text, text),
    pglimit.drop_endpoint_override(text, text, text),
    pglimit.drop_limit(text, text),
    pglimit.drop_limit_override(text, text, text),
    pglimit.force_release(bigint, text),
    pglimit.forget_sign_in(text, text, text),
    pglimit.install_ready(text, text),
    pglimit.purge(bigint),
    pglimit.raise_epoch(),
    pglimit.release_holder(text, text, text, text),
    pglimit.set_endpoint(
        text, bigint, bigint, interval, bigint, boolean, text, text, text, interval, boolean,
        bigint, bigint),
    pglimit.set_endpoint_override(
        text, text, bigint, bigint, timestamptz, timestamptz, text),
    pglimit.set_grace(interval),
    pglimit.set_installation_cap(bigint),
    pglimit.set_limit(
        text, bigint, interval, text, bigint, boolean, text, text, text, text, text, text),
    pglimit.set_limit_override(text, text, bigint, timestamptz, timestamptz, text),
    pglimit.set_purge_after(interval),
    pglimit.simulate(
        text, text[], timestamptz[], bigint[], bigint, interval, text, bigint, text, text),
    pglimit.unblock(text, text, text),
    pglimit.unblock_range(text, inet, text)
to pglimit_operator;
