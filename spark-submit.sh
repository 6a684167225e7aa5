#!/usr/bin/env bash
# spark-submit.sh JOBFILE [OPTION...]: submits a job of this repository and passes its exit code on.
#
#   SPARK_MASTER             where to (default local[*]; spark://..., yarn, k8s://...)
#   TOPICLEDGER_SUBMIT_ARGS  further options for spark-submit, quoted as in a shell; --py-files adds to the package's
#   TOPICLEDGER_LOG_DIR      where Spark's own log goes (default build/logs, file spark.log)
#   PYSPARK_PYTHON           the executors' Python, where the master isn't local (default: this machine's)
#   TOPICLEDGER_IMAGE_HOME   where the image has this checkout, in deploy mode cluster on Kubernetes (default
#                            /opt/topicledger)
#
# With --verbose among the job's options, Spark's log is on stderr too. SIGINT, SIGTERM and SIGHUP reach the job as
# SIGTERM, and Spark goes on until the job has ended.
set -euo pipefail

here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")

fail() {
    printf 'spark-submit.sh: %s\n' "$2" >&2
    exit "$1"
}

(($# > 0)) || fail 2 "usage: spark-submit.sh JOBFILE [OPTION...], e.g. spark-submit.sh jobs/plan.py --config conf/topicledger.toml"
job=$1
shift
[[ -f $job || ! -f $here/$job ]] || job=$here/$job
[[ -f $job ]] || fail 2 "there is no job file $job"

master=${SPARK_MASTER:-local[*]}
python=$here/.venv/bin/python
if [[ -x $python ]]; then
    # Otherwise the environment's spark-submit would run another installation that SPARK_HOME names.
    SPARK_HOME=$("$python" -I -c 'import importlib.util; print(*importlib.util.find_spec("pyspark").submodule_search_locations)')
    export SPARK_HOME
elif [[ -n ${SPARK_HOME:-} ]]; then
    python=$(command -v "${PYSPARK_PYTHON:-python3}") || fail 1 "there is no Python: run 'make setup', or set PYSPARK_PYTHON"
else
    fail 1 "there is neither .venv nor SPARK_HOME: run 'make setup'"
fi

"$python" -I "$here/scripts/package.py" >/dev/null

scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT

jars=
for jar in "$here"/build/jars/delta/delta-*.jar; do
    [[ -f $jar ]] || fail 1 "Delta's jars are missing in build/jars/delta: run 'make setup'"
    jars=$jars,$jar
done

# Commits to ledgers on S3, which several drivers may make at once.
log_store=()
jar=$here/build/jars/s3-log-store/s3-log-store.jar
if [[ -f $jar ]]; then
    jars=$jars,$jar
    log_store=(--conf spark.delta.logStore.s3a.impl=ConditionalS3LogStore)
fi

extra=()
py_files=$here/dist/topicledger.zip
if [[ -n ${TOPICLEDGER_SUBMIT_ARGS:-} ]]; then
    "$python" -I -c 'import os, shlex, sys
try:
    words = shlex.split(os.environ["TOPICLEDGER_SUBMIT_ARGS"])
except ValueError as error:
    sys.exit(str(error))
sys.stdout.write("".join(f"{word}\0" for word in words))' >"$scratch/words" 2>"$scratch/why" ||
        fail 2 "TOPICLEDGER_SUBMIT_ARGS: $(<"$scratch/why")"
    option=
    while IFS= read -r -d '' word; do
        # spark-submit takes the last --py-files only, and ours must be among them.
        case $option$word in
            --py-files) option=$word ;;
            --py-files=*) py_files+=,${word#*=} ;;
            --py-files*) py_files+=,$word option= ;;
            *) extra+=("$word") ;;
        esac
    done <"$scratch/words"
fi

log_dir=${TOPICLEDGER_LOG_DIR:-$here/build/logs}
mkdir -p -- "$log_dir"
log_dir=$(cd -- "$log_dir" && pwd)
log=$log_dir/spark.log
# Only its owner can read a new log. Nobody else's file becomes the log, but that of the folder's owner if only that one
# can have made it.
[[ -e $log || -L $log ]] || (umask 077 && set -o noclobber && : >"$log") 2>/dev/null || true
read -r mode _ folder_owner _ <<<"$(ls -ldn -- "$log_dir")"
read -r _ links owner _ <<<"$(ls -ldn -- "$log" 2>/dev/null)"
[[ $mode == ????????w* ]] || [[ $owner != "$folder_owner" ]] || owner=$EUID
if [[ -L $log || ! -f $log || ! -w $log || $links != 1 || $owner != "$EUID" ]]; then
    fail 2 "Spark's log $log is no regular file of this user, or can't be written: set TOPICLEDGER_LOG_DIR to a folder of your own"
fi
level=WARN
console=OFF
stdin=
for argument; do
    case $argument in
        --verbose) level=INFO console=INFO ;;
        -) stdin=yes ;;
    esac
done
logging="'-Dlog4j2.configurationFile=file:$here/conf/log4j2.properties'"
logging+=" -Dtopicledger.log.level=$level -Dtopicledger.log.console=$console"
logging+=" '-Dtopicledger.log.file=$log'"
# Classes that `make setup` has parsed and checked; where they are of another Java, Java doesn't look at them.
classes=$here/build/classes/spark.jsa
sharing=
if [[ -f $classes ]]; then
    sharing="'-XX:SharedArchiveFile=$classes' -Xshare:auto -Xlog:cds=off"
fi

# Ledgers on this machine's disks: behind Spark's own jars, where it leaves the archive of classes as it is. Executors
# on other machines don't have it.
files=$here/build/jars/local-files/local-files.jar
local_files=()
if [[ $master == local* && -f $files ]]; then
    export SPARK_DIST_CLASSPATH=$files${SPARK_DIST_CLASSPATH:+:$SPARK_DIST_CLASSPATH}
    local_files=(--conf spark.hadoop.fs.file.impl=LocalFiles
        --conf 'spark.hadoop.fs.AbstractFileSystem.file.impl=LocalFiles$Context')
fi

export TOPICLEDGER_PYTHON=$python

if [[ $master == local* ]]; then
    export SPARK_LOCAL_IP=${SPARK_LOCAL_IP:-127.0.0.1}
    export PYSPARK_PYTHON=$here/scripts/python.sh
else
    export PYSPARK_PYTHON=${PYSPARK_PYTHON:-$python}
fi

elsewhere=
[[ ! " ${extra[*]-} " =~ (\ --deploy-mode[\ =]|\ spark.submit.deployMode=)cluster\  ]] || elsewhere=yes
if [[ -n $elsewhere && $master == k8s://* ]]; then
    # Pods have the checkout that is in their image.
    home=${TOPICLEDGER_IMAGE_HOME:-/opt/topicledger}
    image=local://$home
    export PYSPARK_PYTHON=$home/.venv/bin/python PYSPARK_DRIVER_PYTHON=$home/.venv/bin/python
    jars=${jars//"$here"/"$image"}
    py_files=${py_files//"$here"/"$image"}
    job=$(readlink -f -- "$job")
    job=${job/#"$here"/"$image"}
fi

# Spark makes the place of its own catalog in the working folder by default; a metastore has its own.
warehouse=()
if [[ -z $elsewhere && " ${extra[*]-}" != *spark.sql.catalogImplementation* ]]; then
    warehouse=(--conf "spark.sql.warehouse.dir=file:$scratch/warehouse")
fi

command=("$SPARK_HOME/bin/spark-submit" --master "$master" --properties-file "$here/conf/spark-defaults.conf"
    --py-files "$py_files" --jars "${jars#,}" ${local_files[@]+"${local_files[@]}"} ${log_store[@]+"${log_store[@]}"}
    ${warehouse[@]+"${warehouse[@]}"} ${extra[@]+"${extra[@]}"})
if [[ -n $elsewhere ]]; then
    # Spark would say so with exit code 1, which means: start it again.
    [[ $master != spark://* ]] || fail 2 "Spark's standalone clusters run no Python in deploy mode cluster: leave --deploy-mode out"
    # The job runs elsewhere: nothing of this machine's streams and paths, and what Spark says of it is all there is.
    console=INFO
else
    export PYSPARK_DRIVER_PYTHON=$here/scripts/driver-python.sh
    export TOPICLEDGER_SUBMIT_PID=$$ TOPICLEDGER_SCRATCH=$scratch
    command+=(--driver-java-options "$logging $sharing")
fi
command+=("$job" "$@")

# The job opens our streams anew (driver-python.sh). A terminal or a pipe stays the same by that; a file would be written
# from another place than where we are, a socket can't be opened, nor can a pipe or a terminal of another user (sudo -u,
# some containers): those get a pipe, and a cat behind it.
needs_pump() {
    [[ -f /dev/fd/$1 || -S /dev/fd/$1 ]] || is_anothers "$1" w
}
# Of /dev/fd Bash itself knows that it is open, and asks for no more.
is_anothers() {
    [[ -e /proc/$$/fd/$1 ]] && ! test "-$2" "/proc/$$/fd/$1"
}
pumps=()
feed=
both=
[[ ! /dev/fd/1 -ef /dev/fd/2 ]] || both=yes
if needs_pump 1; then
    exec > >(trap '' INT TERM HUP && exec cat)
    pumps+=("$!")
    [[ -z $both ]] || exec 2>&1
fi
if needs_pump 2; then
    exec 2> >(trap '' INT TERM HUP && exec cat >&2)
    pumps+=("$!")
fi
if [[ -z $stdin ]]; then
    exec </dev/null
elif [[ ! -p /dev/fd/0 ]] || is_anothers 0 r; then
    exec < <(exec cat)
    feed=$!
fi

# Whatever a job that ran elsewhere ended with, Spark ends with 1 (YARN) or 0 (Kubernetes): its code is in what Spark says.
if [[ -n $elsewhere ]]; then
    exec {said}> >(trap '' INT TERM HUP && exec tee -- "$scratch/said" >&2)
    teller=$!
fi

# A process group of its own: Ctrl-C in a terminal is for this script, which passes it on.
set -m
# What the JVM itself prints before its log is set up goes to a file; the job's Python has our own streams.
if [[ $console == OFF ]]; then
    "${command[@]}" >"$scratch/jvm" 2>&1 &
elif [[ -n $elsewhere ]]; then
    "${command[@]}" 2>&"$said" {said}>&- &
else
    "${command[@]}" &
fi
submitted=$!

# The job must hear of the signal before the JVM that it still needs: a JVM that got it would end at once.
signalled=
# shellcheck disable=SC2329  # invoked by the trap
pass_on() {
    signalled=yes
    if [[ -s $scratch/driver ]]; then
        kill -TERM "$(<"$scratch/driver")" 2>/dev/null || true
    else
        kill -TERM "$submitted" 2>/dev/null || true
    fi
}
trap pass_on INT TERM HUP

# code_of ENDED: the job's exit code. Nobody says how a driver ended that was lost with its machine, and no job ends
# with more than 5: then its container was killed.
code_of() {
    case $1 in
        [0-5]) printf '%s' "$1" ;;
        *) printf 1 ;;
    esac
}

# driver_ended: how the driver's container ended, as Kubernetes says; others of its Pod may have ended, too.
driver_ended() {
    local line container='' driver='' last=''
    while IFS= read -r line; do
        case $line in
            *'container name: '*) container=${line##* } ;;
            *'exit code: '*)
                last=${line##* }
                [[ $container != spark-kubernetes-driver ]] || driver=$last
                ;;
        esac
    done <"$scratch/said"
    printf '%s' "${driver:-$last}"
}

code=0
while :; do
    signalled=
    code=0
    # -f: not before it has ended, also where somebody stops it for a while.
    wait -f "$submitted" || code=$?
    [[ -n $signalled ]] || break
done

if [[ -n $elsewhere ]]; then
    exec {said}>&-
    wait "$teller"
    if [[ $master != k8s://* && $code -eq 1 ]]; then
        ended=$(grep -oE 'User application exited with( status)? [0-9]+$' "$scratch/said" | tail -n 1) || true
        code=$(code_of "${ended##* }")
        # Spark's own 1 counts, whatever the application says.
        [[ $code -ne 0 ]] || code=1
    elif [[ $master = k8s://* && $code -eq 0 ]]; then
        code=$(code_of "$(driver_ended)")
    fi
fi

if [[ -s $scratch/jvm ]]; then
    sed -i.all '/^WARNING: Using incubator modules/d' "$scratch/jvm"
    cat "$scratch/jvm" >>"$log"
    # Without a job, nobody else says why.
    [[ -s $scratch/driver ]] || sed '/^[[:space:]]*at /d' "$scratch/jvm" >&2
fi
[[ -z $feed ]] || kill "$feed" 2>/dev/null || true
exec >&- 2>&-
[[ ${#pumps[@]} -eq 0 ]] || wait "${pumps[@]}"
exit "$code"
