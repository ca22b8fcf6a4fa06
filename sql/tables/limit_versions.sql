-- Numbers the changes of limits and endpoints. Logged: a version seen by a client never comes back.
create sequence pglimit.limit_versions as bigint cache 1;
