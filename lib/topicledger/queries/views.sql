-- Views over the tables of a ledger: docs/queries.md describes their columns.
--
-- `topicledger views` creates them in a catalog, and `topicledger sql` has them for any ledger. Spark and DuckDB read
-- this file as it is; DuckDB reads duckdb.sql first, which has the tables and Spark's functions that DuckDB lacks.
-- A value that is unknown is null in the tables. No view takes it for zero, none or unused.
-- Days are those of UTC, and have 24 hours, whatever the session's time zone is.

-- Settings of the views: commands replace this view by one with the values of [views] and [guards].
CREATE OR REPLACE VIEW view_settings AS
SELECT
    30 AS unused_days,
    CAST(100000000 AS BIGINT) AS partition_bytes,
    CAST(NULL AS DOUBLE) AS gigabyte_price,
    CAST(NULL AS DOUBLE) AS partition_price,
    CAST(NULL AS STRING) AS currency,
    0 AS most_approvals;

-- One spelling of each owner of topics. Owners are compared regardless of case and surrounding blanks.
CREATE OR REPLACE VIEW owner_names AS
SELECT lower(trim(owner)) AS owner_key, min(trim(owner)) AS owner
FROM manifests
WHERE trim(owner) <> ''
GROUP BY lower(trim(owner));

-- Live topics as last observed, with their declaration, the configs of the last audit and the last usage.
CREATE OR REPLACE VIEW current_topics AS
WITH described AS (
    SELECT cluster, topic, topic_id, explode(configs) AS config
    FROM observed_configs
),
config_values AS (
    SELECT
        cluster,
        topic,
        topic_id,
        max(CASE WHEN described.config.name = 'cleanup.policy' THEN described.config.value END) AS cleanup_policy,
        max(CASE WHEN described.config.name = 'retention.ms' THEN described.config.value END) AS retention_ms,
        max(CASE WHEN described.config.name = 'retention.bytes' THEN described.config.value END) AS retention_bytes,
        max(CASE WHEN described.config.name = 'min.insync.replicas' THEN described.config.value END) AS min_insync,
        max(CASE WHEN described.config.name = 'unclean.leader.election.enable' THEN described.config.value END)
            AS unclean_election
    FROM described
    GROUP BY cluster, topic, topic_id
),
declarations AS (
    -- A topic that is declared twice is one topic.
    SELECT
        cluster,
        topic,
        min(lower(nullif(trim(owner), ''))) AS owner_key,
        max(CASE WHEN state = 'present' THEN 1 ELSE 0 END) = 1 AS declared,
        max_by(labels, CASE WHEN labels IS NULL THEN 0 ELSE 1 END) AS labels,
        min(description) AS description
    FROM manifests
    GROUP BY cluster, topic
),
used AS (
    SELECT
        cluster,
        topic,
        topic_id,
        bytes,
        bytes_one_copy,
        last_record_at,
        observed_at,
        row_number() OVER (PARTITION BY cluster, topic ORDER BY observed_at DESC, run_id DESC) AS place
    FROM usage
)
SELECT
    observed.cluster,
    observed.topic,
    observed.topic_id,
    owner_names.owner,
    coalesce(declarations.declared, false) AS declared,
    declarations.labels,
    declarations.description,
    observed.num_partitions,
    observed.replication_factor,
    config_values.cleanup_policy,
    try_cast(config_values.retention_ms AS BIGINT) AS retention_ms,
    try_cast(config_values.retention_bytes AS BIGINT) AS retention_bytes,
    try_cast(config_values.min_insync AS INT) AS min_insync_replicas,
    config_values.unclean_election = 'true' AS unclean_leader_election,
    used.bytes,
    used.bytes_one_copy,
    used.last_record_at,
    used.observed_at AS usage_at,
    observed.observed_at
FROM observed
LEFT JOIN declarations
    ON observed.cluster = declarations.cluster AND observed.topic = declarations.topic
LEFT JOIN owner_names ON declarations.owner_key = owner_names.owner_key
LEFT JOIN config_values
    ON observed.cluster = config_values.cluster AND observed.topic = config_values.topic
    AND observed.topic_id IS NOT DISTINCT FROM config_values.topic_id
LEFT JOIN used
    ON observed.cluster = used.cluster AND observed.topic = used.topic AND used.place = 1
    AND observed.topic_id IS NOT DISTINCT FROM used.topic_id
WHERE coalesce(observed.permitted, true) AND NOT coalesce(observed.internal, false);

-- Audits that compared all of a cluster, whatever became of other clusters. The cluster is empty for all clusters of the
-- settings: older audits didn't name them.
CREATE OR REPLACE VIEW whole_audits AS
WITH audits AS (
    SELECT
        run_id,
        started_at,
        coalesce(
            arguments['audited'],
            CASE WHEN state = 'finished' THEN coalesce(arguments['clusters'], '') END
        ) AS audited
    FROM runs
    WHERE arguments['command'] = 'audit'
        AND (scope IS NULL OR (scope LIKE '{"clusters": [%]}' AND scope NOT LIKE '%], "%'))
)
SELECT run_id, started_at, explode(split(audited, ',')) AS cluster
FROM audits
WHERE audited IS NOT NULL;

-- Drift of each cluster in the last audit that compared all of the cluster.
CREATE OR REPLACE VIEW open_drift AS
WITH last_audits AS (
    SELECT found.cluster, max_by(whole_audits.run_id, whole_audits.started_at) AS run_id
    FROM (SELECT DISTINCT cluster FROM drift) AS found
    INNER JOIN whole_audits ON whole_audits.cluster = found.cluster OR whole_audits.cluster = ''
    GROUP BY found.cluster
)
SELECT
    drift.severity,
    drift.cluster,
    drift.topic,
    drift.kind,
    drift.what,
    drift.declared,
    drift.live,
    drift.message,
    drift.since,
    drift.observed_at,
    drift.run_id
FROM drift
INNER JOIN last_audits ON drift.cluster = last_audits.cluster AND drift.run_id = last_audits.run_id;

-- Changes that clusters acknowledged: one row per action, or per value of an action that changed several.
CREATE OR REPLACE VIEW changes AS
WITH changed AS (
    -- One scan of the table, whose rows of one topic Spark finds before it splits them.
    SELECT
        run_id,
        cluster,
        coalesce(resource_type, 'topic') AS resource_type,
        coalesce(resource, topic) AS resource,
        topic,
        action,
        before,
        after,
        num_partitions,
        completed_at,
        explode(
            CASE
                WHEN action IN ('create', 'delete')
                    OR (coalesce(cardinality(before), 0) < 1 AND coalesce(cardinality(after), 0) < 1)
                THEN array_repeat(CAST(NULL AS STRING), 1)
                ELSE array_distinct(
                    coalesce(concat(map_keys(before), map_keys(after)), map_keys(before), map_keys(after))
                )
            END
        ) AS what
    FROM audit
    WHERE phase = 'apply' AND outcome = 'ok'
),
approved AS (
    SELECT
        run_id,
        approvals.by AS approver,
        note,
        plan_digest,
        max_by(plan_digest, approvals.at) OVER (PARTITION BY run_id) AS last_digest
    FROM approvals
),
requested AS (
    -- The requester can't approve a plan, and approvals of an earlier plan of the run don't count.
    SELECT
        runs.run_id,
        runs.requested_by,
        CASE
            WHEN count(approved.approver) > 0 THEN array_sort(array_distinct(array_agg(approved.approver)))
        END AS approved_by,
        CASE
            WHEN count(approved.note) > 0
            THEN array_sort(array_distinct(array_agg(approved.note) FILTER (WHERE approved.note IS NOT NULL)))
        END AS notes
    FROM runs
    LEFT JOIN approved
        ON runs.run_id = approved.run_id
        AND approved.plan_digest IS NOT DISTINCT FROM approved.last_digest
        AND lower(trim(approved.approver)) <> lower(trim(coalesce(runs.requested_by, '')))
    GROUP BY runs.run_id, runs.requested_by
)
SELECT
    changed.completed_at AS changed_at,
    changed.cluster,
    changed.resource_type,
    changed.resource,
    changed.topic,
    changed.action,
    changed.what,
    CASE
        WHEN changed.action = 'delete' AND changed.before['num_partitions'] = '1' THEN '1 partition'
        WHEN changed.action = 'delete' THEN changed.before['num_partitions'] || ' partitions'
        ELSE changed.before[changed.what]
    END AS before,
    CASE
        WHEN changed.action = 'create' AND changed.num_partitions = 1 THEN '1 partition'
        WHEN changed.action = 'create' THEN CAST(changed.num_partitions AS STRING) || ' partitions'
        ELSE changed.after[changed.what]
    END AS after,
    requested.requested_by,
    requested.approved_by,
    requested.notes,
    changed.run_id
FROM changed
LEFT JOIN requested ON changed.run_id = requested.run_id;

-- Resources of each owner on each cluster; live topics that nobody declares have no owner.
CREATE OR REPLACE VIEW ownership AS
WITH owned AS (
    SELECT owner, cluster, 1 AS declared, 0 AS live, 0 AS partitions, 0 AS acls, 0 AS quotas, 0 AS group_configs
    FROM manifests
    WHERE state = 'present'
    UNION ALL
    SELECT owner, cluster, 0, 1, num_partitions, 0, 0, 0
    FROM current_topics
    UNION ALL
    SELECT owner, cluster, 0, 0, 0, 1, 0, 0
    FROM acls
    WHERE coalesce(state, 'present') = 'present'
    UNION ALL
    SELECT owner, cluster, 0, 0, 0, 0, 1, 0
    FROM quotas
    WHERE coalesce(state, 'present') = 'present'
    UNION ALL
    SELECT owner, cluster, 0, 0, 0, 0, 0, 1
    FROM group_configs
    WHERE coalesce(state, 'present') = 'present'
),
named AS (
    SELECT
        coalesce(
            owner_names.owner,
            min(nullif(trim(owned.owner), '')) OVER (PARTITION BY lower(trim(owned.owner)))
        ) AS owner,
        owned.cluster,
        owned.declared,
        owned.live,
        owned.partitions,
        owned.acls,
        owned.quotas,
        owned.group_configs
    FROM owned
    LEFT JOIN owner_names ON lower(trim(owned.owner)) = owner_names.owner_key
)
SELECT
    owner,
    cluster,
    sum(declared) AS declared_topics,
    sum(live) AS live_topics,
    sum(partitions) AS partitions,
    sum(acls) AS acls,
    sum(quotas) AS quotas,
    sum(group_configs) AS group_configs
FROM named
GROUP BY owner, cluster;

-- Live topics with what audits with usage showed of their use. An audit that couldn't tell shows neither use nor none.
CREATE OR REPLACE VIEW topic_use AS
WITH readers AS (
    SELECT run_id, cluster, topic, explode(groups) AS reader
    FROM usage
),
live_readers AS (
    SELECT run_id, cluster, topic, max(coalesce(readers.reader.members, 1)) AS members
    FROM readers
    GROUP BY run_id, cluster, topic
),
shown AS (
    SELECT
        usage.cluster,
        usage.topic,
        usage.topic_id,
        usage.observed_at,
        coalesce(live_readers.members, 0) > 0 AS is_read,
        -- No look at producers: a topic without new records had none that wrote. Lost records may hide new ones.
        coalesce(usage.records_since > 0, usage.since IS NOT NULL AND usage.end_offset IS NOT NULL) AS is_written,
        usage.groups IS NOT NULL AS tells_readers,
        usage.groups IS NOT NULL AND usage.records_since IS NOT NULL AS tells_use,
        usage.end_offset IS NOT NULL AS tells_end
    FROM usage
    LEFT JOIN live_readers
        ON usage.run_id = live_readers.run_id AND usage.cluster = live_readers.cluster
        AND usage.topic = live_readers.topic
),
begun AS (
    -- Counting begins when use was seen last; else when it could be seen first.
    SELECT
        cluster,
        topic,
        topic_id,
        observed_at,
        is_read OR is_written AS is_used,
        tells_readers,
        tells_use,
        coalesce(
            max(CASE WHEN is_read OR is_written THEN observed_at END) OVER of_topic,
            greatest(
                min(CASE WHEN tells_end THEN observed_at END) OVER of_topic,
                min(CASE WHEN tells_readers THEN observed_at END) OVER of_topic
            )
        ) AS unused_since,
        coalesce(
            max(CASE WHEN is_read THEN observed_at END) OVER of_topic,
            min(CASE WHEN tells_readers THEN observed_at END) OVER of_topic
        ) AS unread_since
    FROM shown
    WINDOW of_topic AS (PARTITION BY cluster, topic, topic_id)
),
periods AS (
    SELECT
        cluster,
        topic,
        topic_id,
        max(unused_since) AS unused_since,
        max(CASE WHEN tells_use AND observed_at > unused_since THEN observed_at END) AS unused_until,
        max(unread_since) AS unread_since,
        max(CASE WHEN tells_readers AND observed_at > unread_since THEN observed_at END) AS unread_until,
        max(CASE WHEN is_used THEN observed_at END) AS used_at,
        max(observed_at) AS last_at,
        count(CASE WHEN observed_at > unused_since THEN 1 END) AS audits,
        count(CASE WHEN observed_at > unused_since AND NOT tells_use THEN 1 END) AS unknown_audits
    FROM begun
    GROUP BY cluster, topic, topic_id
)
SELECT
    current_topics.cluster,
    current_topics.topic,
    current_topics.owner,
    current_topics.declared,
    CASE
        -- Most audits of the period must tell.
        WHEN unix_seconds(periods.unused_until) - unix_seconds(periods.unused_since)
            >= 86400 * view_settings.unused_days
            AND 2 * periods.unknown_audits < periods.audits
        THEN 'unused'
        WHEN unix_seconds(periods.last_at) - unix_seconds(periods.used_at) < 86400 * view_settings.unused_days
        THEN 'used'
        ELSE 'unknown'
    END AS use,
    periods.unused_since,
    periods.unused_until,
    periods.unread_since,
    periods.unread_until,
    current_topics.last_record_at,
    current_topics.num_partitions,
    current_topics.bytes
FROM current_topics
LEFT JOIN periods
    ON current_topics.cluster = periods.cluster AND current_topics.topic = periods.topic
    AND current_topics.topic_id IS NOT DISTINCT FROM periods.topic_id
CROSS JOIN view_settings;

-- Topics without a record written and without a live member of a group in the audits with usage of a period that is at
-- least `unused_days` long. Tools keep their own data in topics whose names begin with _, and read it without a group.
CREATE OR REPLACE VIEW unused_topics AS
SELECT cluster, topic, owner, declared, unused_since, unused_until, last_record_at, num_partitions, bytes
FROM topic_use
WHERE use = 'unused' AND substr(topic, 1, 1) <> '_';

-- Size and cost of the live topics of each owner on each cluster.
CREATE OR REPLACE VIEW cost_by_owner AS
WITH sizes AS (
    SELECT
        owner,
        cluster,
        count(*) AS topics,
        count(*) - count(bytes) AS topics_of_unknown_size,
        sum(num_partitions) AS partitions,
        sum(bytes) AS bytes
    FROM current_topics
    GROUP BY owner, cluster
),
costs AS (
    SELECT
        sizes.owner,
        sizes.cluster,
        sizes.topics,
        sizes.topics_of_unknown_size,
        sizes.partitions,
        sizes.bytes,
        CASE
            WHEN view_settings.gigabyte_price IS NULL THEN 0
            WHEN sizes.topics_of_unknown_size = 0 THEN sizes.bytes / 1e9 * view_settings.gigabyte_price
        END AS of_bytes,
        CASE
            WHEN view_settings.partition_price IS NULL THEN 0
            ELSE sizes.partitions * view_settings.partition_price
        END AS of_partitions,
        view_settings.gigabyte_price IS NOT NULL OR view_settings.partition_price IS NOT NULL AS priced,
        view_settings.currency
    FROM sizes
    CROSS JOIN view_settings
)
SELECT
    owner,
    cluster,
    topics,
    topics_of_unknown_size,
    partitions,
    bytes,
    CASE WHEN priced THEN of_bytes + of_partitions END AS cost,
    currency
FROM costs;

-- Topics, partitions and bytes of each owner on each cluster, in the last audit of each day that read the usage of all
-- the cluster. Owners are those of the latest declarations.
CREATE OR REPLACE VIEW growth_by_owner AS
WITH read_usage AS (
    SELECT DISTINCT
        usage.run_id,
        usage.cluster,
        DATE '1970-01-01' + CAST(floor(unix_seconds(usage.observed_at) / 86400) AS INT) AS day,
        usage.observed_at
    FROM usage
    INNER JOIN whole_audits
        ON usage.run_id = whole_audits.run_id
        AND (usage.cluster = whole_audits.cluster OR whole_audits.cluster = '')
),
last_of_days AS (
    SELECT cluster, day, max_by(run_id, observed_at) AS run_id
    FROM read_usage
    GROUP BY cluster, day
),
owners AS (
    SELECT cluster, topic, min(lower(nullif(trim(owner), ''))) AS owner_key
    FROM manifests
    GROUP BY cluster, topic
)
SELECT
    last_of_days.day,
    usage.cluster,
    owner_names.owner,
    count(*) AS topics,
    count(*) - count(usage.bytes) AS topics_of_unknown_size,
    sum(usage.partitions) AS partitions,
    sum(usage.bytes) AS bytes
FROM last_of_days
INNER JOIN usage ON last_of_days.run_id = usage.run_id AND last_of_days.cluster = usage.cluster
LEFT JOIN owners ON usage.cluster = owners.cluster AND usage.topic = owners.topic
LEFT JOIN owner_names ON owners.owner_key = owner_names.owner_key
WHERE NOT coalesce(usage.internal, false)
GROUP BY last_of_days.day, usage.cluster, owner_names.owner;

-- Topics with at least twice as many partitions as their size and their largest group need.
CREATE OR REPLACE VIEW over_partitioned AS
WITH readers AS (
    SELECT run_id, cluster, topic, explode(groups) AS reader
    FROM usage
),
largest_readers AS (
    SELECT
        run_id,
        cluster,
        topic,
        max(readers.reader.members) AS members,
        count(*) - count(readers.reader.members) AS unknown
    FROM readers
    GROUP BY run_id, cluster, topic
),
measured AS (
    SELECT
        usage.cluster,
        usage.topic,
        usage.topic_id,
        usage.bytes_one_copy,
        CASE
            WHEN usage.groups IS NULL OR largest_readers.unknown > 0 THEN NULL
            ELSE coalesce(largest_readers.members, 0)
        END AS members,
        usage.observed_at,
        min(usage.observed_at) OVER (PARTITION BY usage.cluster, usage.topic, usage.topic_id) AS first_at,
        max(usage.observed_at) OVER (PARTITION BY usage.cluster, usage.topic) AS last_at
    FROM usage
    LEFT JOIN largest_readers
        ON usage.run_id = largest_readers.run_id AND usage.cluster = largest_readers.cluster
        AND usage.topic = largest_readers.topic
),
needs AS (
    SELECT
        measured.cluster,
        measured.topic,
        measured.topic_id,
        max(measured.bytes_one_copy) AS most_bytes,
        max(measured.members) AS most_members,
        CAST(greatest(
            1,
            ceil(max(measured.bytes_one_copy) / max(view_settings.partition_bytes)),
            max(measured.members)
        ) AS BIGINT) AS partitions_needed
    FROM measured
    CROSS JOIN view_settings
    WHERE unix_seconds(measured.last_at) - unix_seconds(measured.observed_at) <= 86400 * view_settings.unused_days
        -- The group that will read a new topic may not exist yet.
        AND unix_seconds(measured.last_at) - unix_seconds(measured.first_at) >= 86400 * view_settings.unused_days
    GROUP BY measured.cluster, measured.topic, measured.topic_id
    -- Most audits of the period must tell.
    HAVING count(*) < 2 * count(measured.bytes_one_copy) AND count(*) < 2 * count(measured.members)
)
SELECT
    current_topics.cluster,
    current_topics.topic,
    current_topics.owner,
    current_topics.num_partitions,
    needs.partitions_needed,
    needs.most_bytes,
    needs.most_members
FROM current_topics
INNER JOIN needs
    ON current_topics.cluster = needs.cluster AND current_topics.topic = needs.topic
    AND current_topics.topic_id IS NOT DISTINCT FROM needs.topic_id
WHERE current_topics.num_partitions >= 2 * needs.partitions_needed;

-- Topics that can lose records or refuse writes when one broker fails: one row per topic and risk.
CREATE OR REPLACE VIEW risky_topics AS
SELECT cluster, topic, owner, 'one_replica' AS risk, replication_factor, min_insync_replicas
FROM current_topics
WHERE replication_factor = 1
UNION ALL
SELECT cluster, topic, owner, 'no_spare_replica' AS risk, replication_factor, min_insync_replicas
FROM current_topics
WHERE replication_factor > 1 AND replication_factor = min_insync_replicas
UNION ALL
SELECT cluster, topic, owner, 'refuses_writes' AS risk, replication_factor, min_insync_replicas
FROM current_topics
WHERE replication_factor < min_insync_replicas
UNION ALL
SELECT cluster, topic, owner, 'unclean_election' AS risk, replication_factor, min_insync_replicas
FROM current_topics
WHERE unclean_leader_election;

-- Plans that wait and may need more approvals than they have: saved ones, also those that lack a cluster, and plans that
-- grew while they were applied. Finished plans from files that only wait for their load are missing: no table has the rows
-- of their files, and so whether there is anything to load.
CREATE OR REPLACE VIEW pending_approvals AS
WITH planned AS (
    SELECT
        run_id,
        min(planned_at) AS first_planned_at,
        max(planned_at) AS planned_at,
        sum(CASE WHEN action IS NOT NULL AND phase IS NULL THEN 1 ELSE 0 END) AS actions,
        sum(CASE WHEN action = 'delete' AND phase IS NULL THEN 1 ELSE 0 END) AS deletes,
        sum(CASE WHEN guards IS NULL THEN 0 ELSE 1 END) AS stopped
    FROM plans
    GROUP BY run_id
),
approved AS (
    SELECT
        approvals.run_id,
        count(DISTINCT lower(trim(approvals.by))) AS approvals,
        count(DISTINCT CASE WHEN approvals.allows IS NOT NULL THEN lower(trim(approvals.by)) END) AS allowing,
        array_sort(array_agg(DISTINCT approvals.by)) AS approved_by
    FROM approvals
    INNER JOIN runs ON approvals.run_id = runs.run_id
    LEFT JOIN planned ON approvals.run_id = planned.run_id
    WHERE lower(trim(approvals.by)) <> lower(trim(coalesce(runs.requested_by, '')))
        -- A plan that was continued after an approval needs it again.
        AND coalesce(approvals.at >= planned.planned_at, true)
    GROUP BY approvals.run_id
),
open_plans AS (
    SELECT
        runs.run_id,
        runs.started_at AS planned_at,
        runs.requested_by,
        coalesce(planned.actions, 0) AS actions,
        coalesce(planned.deletes, 0) AS deletes,
        -- The guard of removed rows stops the load of the plan's files.
        coalesce(planned.stopped, 0) + CASE WHEN runs.arguments['removed_rows'] IS NULL THEN 0 ELSE 1 END AS stopped
    FROM runs
    LEFT JOIN planned ON runs.run_id = planned.run_id
    WHERE runs.state = 'planned'
        OR (runs.state = 'planning' AND runs.observed_at IS NOT NULL)
        OR (runs.state = 'applying' AND planned.first_planned_at < planned.planned_at)
),
waiting AS (
    SELECT
        open_plans.*,
        coalesce(approved.approvals, 0) AS approvals,
        coalesce(approved.allowing, 0) AS allowing,
        greatest(view_settings.most_approvals, CASE WHEN open_plans.stopped > 0 THEN 1 ELSE 0 END) AS approvals_needed,
        approved.approved_by
    FROM open_plans
    LEFT JOIN approved ON open_plans.run_id = approved.run_id
    CROSS JOIN view_settings
    WHERE open_plans.actions + open_plans.stopped > 0
)
SELECT run_id, planned_at, requested_by, actions, deletes, stopped, approvals, approvals_needed, approved_by
FROM waiting
-- Only approvals with --allow let stopped actions through.
WHERE approvals < approvals_needed OR (stopped > 0 AND allowing < approvals_needed);

-- Policies that the last plan of each resource violates; a warning refuses nothing. A later plan of all that is declared
-- for the cluster ends a violation of a resource that needs nothing any more.
CREATE OR REPLACE VIEW policy_violations AS
WITH whole_plans AS (
    SELECT run_id, started_at, explode(split(coalesce(arguments['clusters'], ''), ',')) AS cluster
    FROM runs
    WHERE arguments['command'] IN ('plan', 'provision') AND state IN ('planned', 'applying', 'finished')
        AND coalesce(
            arguments['only'], arguments['reverts'], arguments['prunes'], arguments['rebalance'], arguments['files'],
            arguments['manifest_version']
        ) IS NULL
        AND (scope IS NULL OR (scope LIKE '{"clusters": [%]}' AND scope NOT LIKE '%], "%'))
),
unreached AS (
    SELECT run_id, cluster
    FROM plans
    GROUP BY run_id, cluster
    HAVING max(CASE WHEN error = 'CLUSTER_UNREACHABLE' THEN 1 ELSE 0 END) = 1
        -- A later start of the run may have reached it.
        AND max(CASE WHEN action IS NOT NULL OR phase IN ('policy', 'guard') THEN 1 ELSE 0 END) = 0
),
last_whole_plans AS (
    SELECT found.cluster, max(whole_plans.started_at) AS started_at
    FROM (SELECT DISTINCT cluster FROM plans) AS found
    INNER JOIN whole_plans ON whole_plans.cluster = found.cluster OR whole_plans.cluster = ''
    LEFT JOIN unreached ON whole_plans.run_id = unreached.run_id AND found.cluster = unreached.cluster
    WHERE unreached.run_id IS NULL
    GROUP BY found.cluster
),
evaluated AS (
    SELECT
        run_id,
        cluster,
        coalesce(resource_type, 'topic') AS resource_type,
        coalesce(resource, topic) AS resource,
        topic,
        action,
        owner,
        violations,
        planned_at,
        max(planned_at) OVER (
            PARTITION BY cluster, coalesce(resource_type, 'topic'), coalesce(resource, topic)
        ) AS last_planned_at
    FROM plans
    WHERE coalesce(error, '') <> 'CLUSTER_UNREACHABLE'
),
last_plans AS (
    SELECT
        evaluated.run_id,
        evaluated.cluster,
        evaluated.resource_type,
        evaluated.resource,
        evaluated.topic,
        evaluated.action,
        coalesce(owner_names.owner, nullif(trim(evaluated.owner), '')) AS owner,
        evaluated.planned_at,
        evaluated.violations
    FROM evaluated
    LEFT JOIN last_whole_plans ON evaluated.cluster = last_whole_plans.cluster
    LEFT JOIN owner_names ON lower(trim(evaluated.owner)) = owner_names.owner_key
    WHERE evaluated.planned_at = evaluated.last_planned_at
        AND coalesce(evaluated.planned_at >= last_whole_plans.started_at, true)
),
violated AS (
    SELECT run_id, cluster, resource_type, resource, topic, action, owner, planned_at, explode(violations) AS violation
    FROM last_plans
    UNION
    -- Policies are evaluated again before a batch is sent, and brokers have their own.
    SELECT
        last_plans.run_id,
        last_plans.cluster,
        last_plans.resource_type,
        last_plans.resource,
        last_plans.topic,
        last_plans.action,
        last_plans.owner,
        last_plans.planned_at,
        explode(audit.violations) AS violation
    FROM last_plans
    INNER JOIN audit
        ON last_plans.run_id = audit.run_id AND last_plans.cluster = audit.cluster
        AND last_plans.resource_type = coalesce(audit.resource_type, 'topic')
        AND last_plans.resource = coalesce(audit.resource, audit.topic)
        AND last_plans.action = audit.action
)
SELECT
    cluster,
    resource_type,
    resource,
    topic,
    owner,
    action,
    violated.violation.policy,
    violated.violation.message LIKE 'warning: %' AS warns,
    violated.violation.message,
    planned_at,
    run_id
FROM violated;
