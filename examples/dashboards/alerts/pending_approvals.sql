-- Alert if `found` > 0: plans that have waited for an approval for more than four hours.
SELECT count(*) AS found, min(planned_at) AS oldest, min_by(run_id, planned_at) AS first_run
FROM pending_approvals
WHERE planned_at < current_timestamp() - INTERVAL 4 HOURS
