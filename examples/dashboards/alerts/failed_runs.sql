-- Alert if `found` > 0: runs that failed within a day, that are still changing clusters after an hour, or that were
-- started within a day and have planned or audited for more than an hour. If guards may stop deletes until somebody
-- allows them, add exit code 5 to 0 and 3.
SELECT count(*) AS found, max_by(run_id, started_at) AS newest
FROM runs
WHERE (exit_code NOT IN (0, 3) AND finished_at >= current_timestamp() - INTERVAL 1 DAY)
    OR (
        started_at < current_timestamp() - INTERVAL 1 HOUR
        AND (state = 'applying' OR (state = 'planning' AND started_at >= current_timestamp() - INTERVAL 1 DAY))
    )
