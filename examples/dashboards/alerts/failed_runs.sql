-- Alert if `found` > 0: runs of the last day that failed, or that were started more than an hour ago and didn't finish.
SELECT count(*) AS found, max_by(run_id, started_at) AS newest
FROM runs
WHERE started_at >= current_timestamp() - INTERVAL 1 DAY
    AND (
        exit_code NOT IN (0, 3)
        OR (state IN ('planning', 'applying') AND started_at < current_timestamp() - INTERVAL 1 HOUR)
    )
