-- Alert if `found` > 0: clusters that no audit has compared for two days.
SELECT count(*) AS found, min(last_audit) AS oldest
FROM (
    SELECT clusters.name, max(audits.finished_at) AS last_audit
    FROM clusters
    LEFT JOIN (SELECT * FROM runs WHERE arguments['command'] = 'audit' AND state = 'finished') AS audits
        ON coalesce(audits.arguments['clusters'], '') = ''
        OR array_contains(split(audits.arguments['clusters'], ','), clusters.name)
    GROUP BY clusters.name
)
WHERE last_audit IS NULL OR last_audit < current_timestamp() - INTERVAL 2 DAYS
