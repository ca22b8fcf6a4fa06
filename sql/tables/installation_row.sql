-- Result of show_installation.
create type pglimit.installation_row as (
    installation_cap bigint,
    in_use bigint,
    epoch bigint,
    epoch_since timestamptz,
    purge_after interval,
    last_purge_at timestamptz,
    code_version text,
    installed_at timestamptz
);

comment on type pglimit.installation_row is
    'result of show_installation';
