-- The installation's one row: its settings, its epoch and the code that is installed.
-- Logged: it must survive a crash, for the epoch above all.
create table pglimit.installation (
    singleton boolean not null default true,
    installation_cap bigint not null,
    purge_after interval not null default '1 day',
    epoch bigint not null default 0,
    epoch_since timestamptz,
    installed_at timestamptz not null default clock_timestamp(),
    code_version text,
    code_hash text,
    live_known bigint not null default 0,
    grace interval not null default '30 s',
    lost_at timestamptz,
    losses bigint not null default 0,
    secret bytea not null default decode(
        replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'),
    constraint installation_pkey primary key (singleton),
    constraint installation_singleton_check check (singleton),
    constraint installation_installation_cap_check check (installation_cap >= 0),
    constraint installation_purge_after_check check (purge_after >= '0 s'),
    constraint installation_live_known_check check (live_known >= 0),
    constraint installation_grace_check check (grace between '0 s' and '1 day'),
    constraint installation_losses_check check (losses >= 0)
);

comment on table pglimit.installation is
    'one row: settings, epoch and installed code of this installation';
comment on column pglimit.installation.installation_cap is
    'permits live at once over all tenants and endpoints';
comment on column pglimit.installation.purge_after is
    'how long a pool or counter must have been idle before purge removes it';
comment on column pglimit.installation.epoch is
    'high part of every permit_id; minutes since 2025, raised when the unlogged tables are lost';
comment on column pglimit.installation.live_known is
    'slots of the installation''s pool in use when purge last looked';
comment on column pglimit.installation.grace is
    'how long after a loss its permits can be reasserted, and room is kept for them';
comment on column pglimit.installation.lost_at is
    'when the unlogged tables were last found empty after a crash or a promotion';
comment on column pglimit.installation.losses is
    'how often they were';
comment on column pglimit.installation.secret is
    'of this installation alone; what is hashed with it tells nobody else anything';

insert into pglimit.installation (installation_cap)
values (greatest(1, current_setting('max_connections')::bigint / 4));
