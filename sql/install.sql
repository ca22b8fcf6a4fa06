-- Everything that is re-applied as a whole, in order: the code package. Tables move by migrations.

-- signatures of earlier releases
{{ template "functions/retired.sql" . }}

-- internal: checks and errors
{{ template "functions/internal/check_transaction.sql" . }}
{{ template "functions/internal/check_standby.sql" . }}
{{ template "functions/internal/check_names.sql" . }}
{{ template "functions/internal/fixed_interval.sql" . }}
{{ template "functions/internal/calendar_unit.sql" . }}
{{ template "functions/internal/check_hit.sql" . }}
{{ template "functions/internal/check_arrays.sql" . }}
{{ template "functions/internal/check_wants.sql" . }}
{{ template "functions/internal/check_claim.sql" . }}
{{ template "functions/internal/check_request_id.sql" . }}
{{ template "functions/internal/check_rule.sql" . }}
{{ template "functions/internal/check_time_zone.sql" . }}
{{ template "functions/internal/check_queue.sql" . }}
{{ template "functions/internal/check_ticket.sql" . }}
{{ template "functions/internal/check_validity.sql" . }}
{{ template "functions/internal/check_max_rows.sql" . }}
{{ template "functions/internal/check_why.sql" . }}
{{ template "functions/internal/unknown_limit.sql" . }}
{{ template "functions/internal/unknown_endpoint.sql" . }}
{{ template "functions/internal/no_lease.sql" . }}
{{ template "functions/internal/lost_races.sql" . }}

-- internal: pieces of decisions
{{ template "functions/internal/sliding_wait.sql" . }}
{{ template "functions/internal/count_as.sql" . }}
{{ template "functions/internal/find_carries.sql" . }}
{{ template "functions/internal/keep_count.sql" . }}
{{ template "functions/internal/keep_hold.sql" . }}
{{ template "functions/internal/address.sql" . }}
{{ template "functions/internal/network.sql" . }}
{{ template "functions/internal/address_spans.sql" . }}
{{ template "functions/internal/find_block.sql" . }}
{{ template "functions/internal/hit_special.sql" . }}
{{ template "functions/internal/hit_bucket.sql" . }}
{{ template "functions/internal/hit_sliding.sql" . }}
{{ template "functions/internal/counted_by.sql" . }}
{{ template "functions/internal/hit_given.sql" . }}
{{ template "functions/internal/carry_counter.sql" . }}
{{ template "functions/internal/stamp_counter.sql" . }}
{{ template "functions/internal/ready_limit.sql" . }}
{{ template "functions/internal/sign_in_keys.sql" . }}
{{ template "functions/internal/sign_in_hit.sql" . }}
{{ template "functions/internal/return_hold.sql" . }}
{{ template "functions/internal/lock_creation.sql" . }}
{{ template "functions/internal/lock_block.sql" . }}
{{ template "functions/internal/apply_block.sql" . }}
{{ template "functions/internal/lock_counts.sql" . }}
{{ template "functions/internal/stamp_network.sql" . }}
{{ template "functions/internal/hit_again.sql" . }}
{{ template "functions/internal/sweep_lane.sql" . }}
{{ template "functions/internal/find_lanes.sql" . }}
{{ template "functions/internal/retire_lapsed.sql" . }}
{{ template "functions/internal/take_lanes.sql" . }}
{{ template "functions/internal/lock_permit.sql" . }}
{{ template "functions/internal/begin_epoch.sql" . }}
{{ template "functions/internal/find_reserve.sql" . }}
{{ template "functions/internal/claim_rule.sql" . }}
{{ template "functions/internal/claim_terms.sql" . }}
{{ template "functions/internal/grant_beyond.sql" . }}

-- internal: queues
{{ template "functions/internal/poll_after.sql" . }}
{{ template "functions/internal/patience.sql" . }}
{{ template "functions/internal/current_rows.sql" . }}
{{ template "functions/internal/wait_turn.sql" . }}
{{ template "functions/internal/refuse_turn.sql" . }}
{{ template "functions/internal/leave_queue.sql" . }}
{{ template "functions/internal/endpoint_pools.sql" . }}

-- internal: history and sums
{{ template "functions/internal/record_change.sql" . }}
{{ template "functions/internal/carry_limit.sql" . }}
{{ template "functions/internal/shadow_refused.sql" . }}

-- counters
{{ template "functions/hit.sql" . }}
{{ template "functions/hit_many.sql" . }}
{{ template "functions/peek.sql" . }}
{{ template "functions/hit_up_to.sql" . }}
{{ template "functions/charge.sql" . }}
{{ template "functions/refund.sql" . }}
{{ template "functions/hold.sql" . }}
{{ template "functions/settle.sql" . }}
{{ template "functions/forget.sql" . }}
{{ template "functions/check_sign_in.sql" . }}
{{ template "functions/sign_in_failed.sql" . }}
{{ template "functions/sign_in_succeeded.sql" . }}
{{ template "functions/show_sign_in.sql" . }}
{{ template "functions/forget_sign_in.sql" . }}
{{ template "functions/heartbeat_replica.sql" . }}

-- permits
{{ template "functions/claim_permit.sql" . }}
{{ template "functions/renew_permit.sql" . }}
{{ template "functions/release_permit.sql" . }}
{{ template "functions/reassert_permit.sql" . }}
{{ template "functions/enqueue_permit.sql" . }}
{{ template "functions/poll_ticket.sql" . }}

-- both
{{ template "functions/admit.sql" . }}

-- limits and endpoints
{{ template "functions/set_limit.sql" . }}
{{ template "functions/drop_limit.sql" . }}
{{ template "functions/list_limits.sql" . }}
{{ template "functions/explain_limit.sql" . }}
{{ template "functions/simulate.sql" . }}
{{ template "functions/set_limit_override.sql" . }}
{{ template "functions/drop_limit_override.sql" . }}
{{ template "functions/list_limit_overrides.sql" . }}
{{ template "functions/block.sql" . }}
{{ template "functions/unblock.sql" . }}
{{ template "functions/block_range.sql" . }}
{{ template "functions/unblock_range.sql" . }}
{{ template "functions/pause.sql" . }}
{{ template "functions/strike.sql" . }}
{{ template "functions/list_blocks.sql" . }}
{{ template "functions/set_endpoint.sql" . }}
{{ template "functions/drop_endpoint.sql" . }}
{{ template "functions/list_endpoints.sql" . }}
{{ template "functions/set_endpoint_override.sql" . }}
{{ template "functions/drop_endpoint_override.sql" . }}
{{ template "functions/list_endpoint_overrides.sql" . }}
{{ template "functions/install_ready.sql" . }}

-- operation
{{ template "functions/pglimit_version.sql" . }}
{{ template "functions/list_permits.sql" . }}
{{ template "functions/list_counters.sql" . }}
{{ template "functions/list_holds.sql" . }}
{{ template "functions/list_changes.sql" . }}
{{ template "functions/force_release.sql" . }}
{{ template "functions/release_holder.sql" . }}
{{ template "functions/purge.sql" . }}
{{ template "functions/set_installation_cap.sql" . }}
{{ template "functions/set_purge_after.sql" . }}
{{ template "functions/set_grace.sql" . }}
{{ template "functions/raise_epoch.sql" . }}
{{ template "functions/show_installation.sql" . }}
{{ template "functions/doctor.sql" . }}

-- who may see and call what
{{ template "functions/internal/secure_relation.sql" . }}
{{ template "policies/installation.sql" . }}
{{ template "policies/limits.sql" . }}
{{ template "policies/limit_carries.sql" . }}
{{ template "policies/limit_overrides.sql" . }}
{{ template "policies/blocks.sql" . }}
{{ template "policies/block_ranges.sql" . }}
{{ template "policies/endpoints.sql" . }}
{{ template "policies/endpoint_overrides.sql" . }}
{{ template "policies/changes.sql" . }}
{{ template "policies/counters.sql" . }}
{{ template "policies/durable_counters.sql" . }}
{{ template "policies/holds.sql" . }}
{{ template "policies/durable_holds.sql" . }}
{{ template "policies/permits.sql" . }}
{{ template "policies/creation_locks.sql" . }}
{{ template "policies/known_sign_ins.sql" . }}
{{ template "policies/replicas.sql" . }}
{{ template "policies/sentinel.sql" . }}
{{ template "policies/purge_progress.sql" . }}
{{ template "policies/limit_versions.sql" . }}
{{ template "policies/special_limits.sql" . }}
{{ template "policies/permit_number.sql" . }}
{{ template "policies/grants.sql" . }}
