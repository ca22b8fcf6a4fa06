-- One row while the unlogged tables are whole: a crash or a promotion empties it with them, and the
-- first claim that misses it begins a new epoch.
create unlogged table pglimit.sentinel (
    singleton boolean not null default true,
    epoch bigint not null,
    constraint sentinel_pkey primary key (singleton),
    constraint sentinel_singleton_check check (singleton)
);

comment on table pglimit.sentinel is
    'present while the unlogged tables are whole; carries the epoch of the permits in them';
