-- Every table, sequence and row type in its present shape. Later deltas are guarded, so that they are
-- no-ops here and the real step on an older database. Migrations run as pglimit_system, which so owns
-- what they make.

-- Settings and definitions
{{ template "tables/installation.sql" . }}
{{ template "tables/limit_versions.sql" . }}
{{ template "tables/special_limits.sql" . }}
{{ template "tables/limits.sql" . }}
{{ template "tables/limit_carries.sql" . }}
{{ template "tables/limit_overrides.sql" . }}
{{ template "tables/blocks.sql" . }}
{{ template "tables/block_ranges.sql" . }}
{{ template "tables/known_sign_ins.sql" . }}
{{ template "tables/endpoints.sql" . }}
{{ template "tables/endpoint_overrides.sql" . }}
{{ template "tables/changes.sql" . }}

-- State
{{ template "tables/counters.sql" . }}
{{ template "tables/durable_counters.sql" . }}
{{ template "tables/permit_number.sql" . }}
{{ template "tables/holds.sql" . }}
{{ template "tables/durable_holds.sql" . }}
{{ template "tables/permits.sql" . }}
{{ template "tables/creation_locks.sql" . }}
{{ template "tables/replicas.sql" . }}
{{ template "tables/sentinel.sql" . }}
{{ template "tables/purge_progress.sql" . }}

-- Rows of results
{{ template "tables/claim_row.sql" . }}
{{ template "tables/ticket_row.sql" . }}
{{ template "tables/poll_row.sql" . }}
{{ template "tables/renew_row.sql" . }}
{{ template "tables/release_row.sql" . }}
{{ template "tables/hit_row.sql" . }}
{{ template "tables/charge_row.sql" . }}
{{ template "tables/hold_row.sql" . }}
{{ template "tables/settle_row.sql" . }}
{{ template "tables/held_row.sql" . }}
{{ template "tables/hit_many_row.sql" . }}
{{ template "tables/admit_row.sql" . }}
{{ template "tables/purge_row.sql" . }}
{{ template "tables/permit_row.sql" . }}
{{ template "tables/counter_row.sql" . }}
{{ template "tables/counter_state.sql" . }}
{{ template "tables/limit_row.sql" . }}
{{ template "tables/explain_row.sql" . }}
{{ template "tables/simulate_row.sql" . }}
{{ template "tables/limit_override_row.sql" . }}
{{ template "tables/block_row.sql" . }}
{{ template "tables/strike_row.sql" . }}
{{ template "tables/sign_in_row.sql" . }}
{{ template "tables/sign_in_state_row.sql" . }}
{{ template "tables/endpoint_row.sql" . }}
{{ template "tables/endpoint_override_row.sql" . }}
{{ template "tables/change_row.sql" . }}
{{ template "tables/installation_row.sql" . }}
{{ template "tables/doctor_row.sql" . }}
