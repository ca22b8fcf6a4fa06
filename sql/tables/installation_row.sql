-- Result of show_installation.
create type pglimit.installation_row as (
    installation_cap bigint,
    in_use bigint,
    epoch bigint,
    epoch_since timestamptz,
    purge_after interval,
    last_purge_at timestamptz,
    code_version text,
    installed_at timestamptz,
    lost_at timestamptz,
    losses bigint,
    live_known bigint,
    grace interval,
    reserved bigint
);

comment on type pglimit.installation_row is
    'result of show_installation';
