-- A row of doctor.
create type pglimit.doctor_row as (
    check_name text,
    state text,
    message text,
    hint text
);

comment on type pglimit.doctor_row is
    'a row of doctor: what one check found, and what to type next';
