-- Alert if `found` > 0: clusters that no audit has compared as a whole for two days.
SELECT count(*) AS found, min(last_audit) AS oldest
FROM (
    SELECT clusters.name, max(whole_audits.started_at) AS last_audit
    FROM clusters
    LEFT JOIN whole_audits ON whole_audits.cluster IN (clusters.name, '')
    GROUP BY clusters.name
)
WHERE last_audit IS NULL OR last_audit < current_timestamp() - INTERVAL 2 DAYS
