-- Alert if `found` > 0: errors among the drift, open for more than a day.
SELECT count(*) AS found, min(since) AS oldest, count(DISTINCT cluster) AS clusters
FROM open_drift
WHERE severity = 'error' AND since < current_timestamp() - INTERVAL 1 DAY
