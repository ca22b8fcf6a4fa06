-- A row of explain_limit.
create type pglimit.explain_row as (
    step text,
    says text,
    facts jsonb
);

comment on type pglimit.explain_row is
    'a row of explain_limit: one step of a decision, in words and as data';
