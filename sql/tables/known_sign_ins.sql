-- Pairs of account and source that have signed in: a stranger who guesses at the account does not
-- lock these out. Hashed with the installation's secret. Logged: a crash must not make an owner a
-- stranger. Kept for 90 days after the last success, which is written once a day.
create table pglimit.known_sign_ins (
    tenant text collate "C" not null,
    pair text collate "C" not null,
    seen_at timestamptz not null,
    constraint known_sign_ins_pkey primary key (tenant, pair)
);

create index known_sign_ins_seen_at_idx on pglimit.known_sign_ins (seen_at);

comment on table pglimit.known_sign_ins is
    'pairs of account and source that have signed in, hashed; a pair is known for 90 days';
comment on column pglimit.known_sign_ins.seen_at is
    'the last success, to the day';
