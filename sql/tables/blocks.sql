-- Subjects that are refused for a time or for ever, at one limit or, with the limit_name *, at
-- every limit of their tenant. Exact in tenant and subject. Logged: a crash must not lift a ban.
-- hit reads it where it reads limit_overrides, and only there: for keys without a counter and for
-- counters that are stamped (see counters). Who adds a row stamps the counters that are there.
-- A row of the subject '', which nobody has, says that there are block_ranges at the limit, and
-- until when the last of them holds: so who has none pays nothing for them.
create table pglimit.blocks (
    tenant text collate "C" not null,
    limit_name text collate "C" not null,
    subject text collate "C" not null,
    blocked_until timestamptz,
    forget_at timestamptz,
    strikes bigint not null default 0,
    why text,
    updated_at timestamptz not null,
    updated_by text not null,
    constraint blocks_pkey primary key (tenant, limit_name, subject),
    constraint blocks_strikes_check check (strikes >= 0),
    constraint blocks_forget_at_check check (forget_at >= blocked_until)
);

create index blocks_forget_at_idx on pglimit.blocks (forget_at);

comment on table pglimit.blocks is
    'subjects that are refused for a time or for ever; beats overrides, modes and what is left';
comment on column pglimit.blocks.limit_name is
    'the limit; * is every limit';
comment on column pglimit.blocks.blocked_until is
    'first instant at which it holds no more; null: for ever';
comment on column pglimit.blocks.forget_at is
    'when purge may remove it: once it is over, and its strikes have decayed; null: never';
comment on column pglimit.blocks.strikes is
    'how many strikes in a row led to it; 0 for block and pause';
