-- Called once a limit has had a mode other than enforce, and so NULL to pg_sequence_last_value()
-- until then. A sequence is the one state that a simple expression reads without a query: so a
-- refusal of a call that brings its own limit learns for a few thousand instructions that there is
-- no mode to look up. setval() is not transactional, which is the safe direction: it is seen before
-- the limit it was raised for, and nothing lowers it. Logged, as limits is.
create sequence pglimit.special_limits as bigint cache 1;
