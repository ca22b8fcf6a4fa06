-- What operators changed: a row for each change of a limit, an endpoint or the installation, and
-- for each release by force, written in the transaction of the change. Logged: who changed what
-- must survive a crash. Nothing on the way of a hit or a claim reads or writes it, and nothing
-- removes rows from it.
create table pglimit.changes (
    version bigint not null default nextval('pglimit.limit_versions'),
    changed_at timestamptz not null,
    changed_by text not null,
    action text not null,
    tenant text collate "C" not null,
    name text collate "C" not null,
    before jsonb,
    after jsonb,
    why text,
    constraint changes_pkey primary key (version)
);

comment on table pglimit.changes is
    'history of what operators changed: who, when, from what, to what';
comment on column pglimit.changes.version is
    'of a limit or an endpoint that was set: the limit_version it got';
comment on column pglimit.changes.action is
    'the function that was called';
comment on column pglimit.changes.name is
    'the limit or the endpoint; empty, like tenant, for what concerns the whole installation';
comment on column pglimit.changes.before is
    'the definition that was there, or what was released or forgotten; null when there was none';
comment on column pglimit.changes.after is
    'the definition that is there since; null when there is none';
