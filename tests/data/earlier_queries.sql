-- Queries of the pages of version b51ecd6, which users may have saved.
SELECT completed_at, run_id, action, resource FROM audit
WHERE resource_type = 'acl' AND phase = 'apply' AND outcome = 'ok' ORDER BY completed_at;

SELECT severity, cluster, topic, kind, what, declared, live, since
FROM delta.`/data/ledger/drift`
WHERE since < current_timestamp() - INTERVAL 1 DAY
  AND run_id = (SELECT max_by(run_id, started_at) FROM delta.`/data/ledger/runs`
                WHERE arguments['command'] = 'audit' AND arguments['clusters'] = '' AND state = 'finished')
ORDER BY severity, since;

SELECT run_id, topic, action, before, after, completed_at
FROM delta.`/data/ledger/audit`
WHERE action IN ('alter_configs', 'add_partitions') AND phase = 'apply' AND outcome = 'ok'
ORDER BY completed_at;

SELECT completed_at, run_id, resource, before, after FROM audit
WHERE resource_type = 'quota' AND phase = 'apply' AND outcome = 'ok' ORDER BY completed_at;

SELECT audit.topic, audit.completed_at, runs.run_id, runs.requested_by, runs.principal, audit.topic_id
FROM delta.`/data/ledger/audit` audit JOIN delta.`/data/ledger/runs` runs USING (run_id)
WHERE audit.cluster = 'orders' AND audit.topic = 'payments.authorised'
  AND audit.action = 'create' AND audit.phase = 'apply' AND audit.outcome = 'ok';

SELECT cluster, topic, action, phase, error, error_message
FROM delta.`/data/ledger/audit`
WHERE outcome IN ('refused', 'failed')
  AND run_id = (SELECT max_by(run_id, started_at) FROM delta.`/data/ledger/runs`)
ORDER BY cluster, topic;

SELECT audit.topic, config.name, config.value, config.config_source
FROM delta.`/data/ledger/audit` audit
JOIN delta.`/data/ledger/plans` plans USING (run_id, cluster, topic, action)
LATERAL VIEW explode(audit.configs) AS config
WHERE audit.phase = 'apply' AND audit.outcome = 'ok'
  AND NOT coalesce(array_contains(map_keys(plans.configs), config.name), false);

SELECT cluster, config.name, max_by(config.value, completed_at) AS value
FROM delta.`/data/ledger/audit` LATERAL VIEW explode(configs) AS config
WHERE phase = 'validate' AND outcome = 'ok' AND config.config_source <> 'DYNAMIC_TOPIC_CONFIG'
GROUP BY cluster, config.name ORDER BY cluster, config.name;

SELECT audit.cluster, audit.topic, audit.num_partitions, audit.replication_factor
FROM delta.`/data/ledger/audit` audit
JOIN delta.`/data/ledger/plans` plans USING (run_id, cluster, topic, action)
WHERE audit.phase = 'apply' AND audit.outcome = 'ok' AND plans.num_partitions IS NULL AND plans.assignments IS NULL
  AND audit.action = 'create';

SELECT cluster, topic, topic_id, run_id, completed_at
FROM delta.`/data/ledger/audit`
WHERE action = 'delete' AND phase = 'apply' AND outcome = 'ok'
ORDER BY completed_at DESC;

SELECT observed.cluster, observed.topic, observed.num_partitions
FROM delta.`/data/ledger/observed` observed LEFT ANTI JOIN delta.`/data/ledger/manifests` manifests
  ON observed.cluster = manifests.cluster AND observed.topic = manifests.topic
WHERE NOT observed.internal AND observed.permitted;

SELECT run_id, cluster, topic, error_message
FROM delta.`/data/ledger/audit` WHERE phase = 'verify' AND outcome = 'pending';

SELECT audit.error, manifests.owner, count(*) AS topics
FROM delta.`/data/ledger/audit` audit
LEFT JOIN delta.`/data/ledger/manifests` manifests USING (cluster, topic)
WHERE audit.outcome IN ('refused', 'failed')
GROUP BY audit.error, manifests.owner ORDER BY topics DESC;

SELECT run_id, state, started_at, requested_by, arguments
FROM delta.`/data/ledger/runs` WHERE state NOT IN ('finished', 'abandoned') ORDER BY started_at;

SELECT cluster, action, phase, batch, count(*) AS topics,
       max(completed_at) - min(requested_at) AS took, max(attempt) AS attempts
FROM delta.`/data/ledger/audit`
WHERE phase IN ('validate', 'apply')
GROUP BY cluster, action, phase, batch ORDER BY cluster, action, phase, batch;
