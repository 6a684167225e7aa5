"""examples/ci is safe against the change it plans: what may be checked of its files without GitHub and a broker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

EXAMPLES = Path(__file__).parents[2] / "examples" / "ci"
WITH_COMMAND = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
"""An environment with the command `topicledger`."""
DEFAULT_BRANCH = "github.event.pull_request.base.ref == github.event.repository.default_branch"


@pytest.fixture(scope="module")
def workflow() -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load((EXAMPLES / "github.yml").read_text())
    return loaded


def steps(workflow: dict[Any, Any], job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = workflow["jobs"][job]["steps"]
    return found


def test_actions_are_pinned_by_commit_and_keep_no_token(workflow: dict[Any, Any]) -> None:
    used = [step for job in workflow["jobs"] for step in steps(workflow, job) if "uses" in step]
    assert len(used) == 2
    for step in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"])
        assert step["with"]["persist-credentials"] is False


def test_jobs_have_only_the_permissions_that_they_need(workflow: dict[Any, Any]) -> None:
    assert workflow["permissions"] == {}
    assert workflow["jobs"]["plan"]["permissions"] == {"contents": "read", "pull-requests": "write"}
    assert workflow["jobs"]["apply"]["permissions"] == {"contents": "read", "pull-requests": "read"}
    assert workflow["jobs"]["allow"]["permissions"] == {"pull-requests": "read"}
    tokens = [(job, step["name"]) for job in workflow["jobs"] for step in steps(workflow, job) if "token" in str(step)]
    assert tokens == [
        ("plan", "Comment"),
        ("allow", "Allow"),
        ("apply", "The one who merged has no part in the change"),
        ("apply", "Apply"),
    ]


def test_only_merges_to_the_default_branch_are_applied(workflow: dict[Any, Any]) -> None:
    apply, plan = workflow["jobs"]["apply"]["if"], workflow["jobs"]["plan"]["if"]
    assert apply == f"github.event.action == 'closed' && github.event.pull_request.merged && {DEFAULT_BRANCH}"
    assert DEFAULT_BRANCH in plan
    assert "head.repo.full_name == github.repository" in plan
    assert steps(workflow, "apply")[0]["with"]["ref"] == "${{ github.event.repository.default_branch }}"


def test_the_author_of_a_pull_request_requests_its_plan(workflow: dict[Any, Any]) -> None:
    """The sender may be a colleague or a bot that updated the branch: the author could then approve by merging."""
    (plan,) = (step for step in steps(workflow, "plan") if step.get("name") == "Plan")
    assert plan["env"] == {"AUTHOR": "${{ github.event.pull_request.user.login }}"}
    assert '"$AUTHOR"' in plan["run"]
    gitlab = (EXAMPLES / "gitlab-ci.yml").read_text()
    assert 'plan.md" "mr-$CI_COMMIT_SHA" "$author" topics $owners' in gitlab


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["bob", "2", "alice", "alice", "web-flow"], 0),
        (["Alice", "1", "alice", "carol", "carol"], 1),
        (["bob", "2", "alice", "alice", "Bob"], 1),
        (["bob", "1", "alice", "unknown", "unknown"], 1),
        (["bob", "101", "alice"], 1),
        (["bob", "0", "alice"], 1),
        (["bob", "", "alice"], 1),
    ],
)
def test_nobody_with_a_part_in_a_change_approves_it(arguments: list[str], code: int) -> None:
    done = subprocess.run([EXAMPLES / "approver.sh", *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == code
    assert ("runs approve" in done.stderr) == bool(code)


@pytest.mark.parametrize(("who", "code"), [("bob", 0), ("alice", 1), ("Carol", 1), ("web-flow", 1)])
def test_on_github_nobody_with_a_part_in_a_change_approves_it(tmp_path: Path, who: str, code: int) -> None:
    answers = 'case "$2" in */pulls/7) echo 2; echo alice;; */pulls/7/commits*) echo carol; echo web-flow;; esac'
    (tmp_path / "gh").write_text(f"#!/bin/sh\n{answers}\n")
    (tmp_path / "gh").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_REPOSITORY": "acme/topics"}
    arguments = [EXAMPLES / "github-approver.sh", who, "7"]
    assert subprocess.run(arguments, env=environment, check=False, capture_output=True).returncode == code


def test_only_a_reviewed_run_is_allowed_more_and_not_by_its_author(workflow: dict[Any, Any]) -> None:
    """The inputs name the run, not the pull request: it may have another commit by now."""
    allow = workflow["jobs"]["allow"]
    assert allow["if"].endswith("github.ref_name == github.event.repository.default_branch")
    (step,) = allow["steps"]
    assert step["env"]["RUN_ID"] == "${{ inputs.run_id }}"
    assert step["env"]["WHO"] == "${{ github.triggering_actor }}"
    assert step["run"].index("github-approver.sh") < step["run"].index("runs approve")


MERGED = [{"iid": 7, "state": "merged", "target_branch": "main", "sha": "abc", "author": {"username": "alice"}}]
COMMITS = [{"author_email": "alice@x.org", "committer_email": "carol@x.org"}]


class Gitlab(Protocol):
    """Runs a script of the example with the answers of GitLab by the last part of their addresses; None: not found."""

    def __call__(self, script: str, *arguments: str, **answers: object) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def gitlab(tmp_path: Path) -> Gitlab:
    """`curl` is a script that answers as GitLab does, and fails if its arguments have the token."""
    curl = tmp_path / "curl"
    private = '[[ "$*" != *secret* && $(cat) == *"PRIVATE-TOKEN: glpat-secret"* ]] || exit 99'
    url = 'url="${@: -1}" url="${url%\\?*}"'
    answer = 'cat "$(dirname "$0")/${url##*/}" 2>/dev/null || { echo "curl: (22) 404" >&2; exit 22; }'
    curl.write_text(f"#!/bin/bash\n{private}\n{url}\n{answer}\n")
    curl.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "CI_API_V4_URL": "https://gitlab.example.org/api/v4",
        "CI_PROJECT_ID": "1",
        "CI_COMMIT_SHA": "abc",
        "CI_DEFAULT_BRANCH": "main",
        "GITLAB_TOKEN": "glpat-secret",
        "GITLAB_USER_LOGIN": "bob",
        "GITLAB_USER_EMAIL": "bob@x.org",
    }

    def run(script: str, *arguments: str, **answers: object) -> subprocess.CompletedProcess[str]:
        for name, found in answers.items():
            (tmp_path / name).unlink(missing_ok=True)
            if found is not None:
                (tmp_path / name).write_text(json.dumps(found))
        command = [EXAMPLES / script, *arguments]
        return subprocess.run(command, env=environment, check=False, capture_output=True, text=True)

    return run


@pytest.mark.parametrize(
    ("requests", "commits", "why"),
    [
        (MERGED, COMMITS, None),
        ([{**MERGED[0], "author": {"username": "Bob"}}], COMMITS, "a change of Bob"),
        (MERGED, [*COMMITS, {"author_email": "alice@x.org", "committer_email": "BOB@x.org"}], "a change of BOB@x.org"),
        (MERGED, [{"author_email": "bob@x.org", "committer_email": "alice@x.org"}], "a change of bob@x.org"),
        (MERGED, [{"author_email": "", "committer_email": "alice@x.org"}], "a change of unknown"),
        (MERGED, COMMITS * 100, "more than are compared"),
        ([{**MERGED[0], "sha": "an earlier one"}], COMMITS, "0 merge requests ended with abc"),
        ([{**MERGED[0], "state": "closed"}], COMMITS, "0 merge requests ended with abc"),
        ([{**MERGED[0], "target_branch": "mine"}], COMMITS, "0 merge requests ended with abc"),
        (None, COMMITS, "curl: (22)"),
    ],
)
def test_on_gitlab_nobody_with_a_part_in_a_change_approves_it(
    gitlab: Gitlab, requests: object, commits: object, why: str | None
) -> None:
    done = gitlab("gitlab-approver.sh", merge_requests=requests, commits=commits)
    assert (done.returncode == 0) == (why is None), done.stderr
    assert (why or "") in done.stderr
    assert "secret" not in done.stdout + done.stderr


SHOWN = "<p>run <code>r-1</code>: planned, manifests at version 3, requested by <code>alice</code>"
TO_APPROVE = "<br>to approve exactly this plan, add: <code>--plan {}</code><br>2 <code>create</code></p>"


def comments(*lines: str) -> str:
    return "".join(f"2026-01-0{day}T12:00:00Z {line}\n" for day, line in enumerate(lines, 1))


def shown_digest(text: str, *until: str) -> str:
    command = [EXAMPLES / "shown-digest.sh", "r-1", *until]
    return subprocess.run(command, input=text, check=True, capture_output=True, text=True).stdout.strip()


def test_the_digest_of_the_last_comment_before_the_merge_is_approved() -> None:
    first, second = (SHOWN + TO_APPROVE.format(each * 16) for each in "ab")
    assert shown_digest(comments(first, second)) == "b" * 16
    assert shown_digest(comments(first, second), "2026-01-01T12:00:00Z") == "a" * 16
    assert shown_digest(comments(first, SHOWN + "</p>")) == "", "by then, the plan needs no approval"
    assert shown_digest(comments(first, second.replace("r-1", "r-10"), "The plan of run `r-1` ended")) == "a" * 16
    assert shown_digest(comments(SHOWN + TO_APPROVE.format("a; touch x"))) == ""
    named = "to approve exactly this plan, add: --plan " + "c" * 16
    assert shown_digest(comments(f"{SHOWN}<br>scope: <code>{named}</code></p>")) == ""
    assert shown_digest("") == ""


@pytest.mark.parametrize(
    ("plan", "allow", "code", "called"),
    [
        ("a" * 16, "", 0, ["runs approve --plan aaaaaaaaaaaaaaaa", "apply"]),
        ("a" * 16, "deletes=2", 0, ["runs approve --plan aaaaaaaaaaaaaaaa --allow deletes=2", "apply"]),
        ("b" * 16, "", 1, ["runs approve --plan bbbbbbbbbbbbbbbb"]),
        ("", "", 0, ["apply"]),
        ("", "deletes=2", 2, []),
    ],
    ids=["shown", "allowed", "changed since", "nothing to approve", "nothing to allow"],
)
def test_a_merge_approves_only_the_plan_that_was_shown(
    tmp_path: Path, plan: str, allow: str, code: int, called: list[str]
) -> None:
    """`topicledger` is a script that refuses to approve a plan with another digest, as the command does."""
    script = tmp_path / "topicledger"
    script.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\ncase "$*" in *bbbb*) exit 5;; esac\n')
    script.chmod(0o755)
    variables = {"TOPICLEDGER_CONFIG": "c", "TOPICLEDGER_PLAN": plan, "TOPICLEDGER_ALLOW": allow}
    environment = {**os.environ, **variables, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [EXAMPLES / "apply.sh", "r-1", "bob", "topics"]
    assert subprocess.run(command, env=environment, check=False, capture_output=True).returncode == code
    calls = tmp_path / "calls"
    lines = calls.read_text().splitlines() if calls.exists() else []
    approve = "runs approve --config c r-1 --by bob --note merged"
    apply = "apply --config c --run-id r-1 --wait topics"
    assert lines == [apply if each == "apply" else each.replace("runs approve", approve) for each in called]


def test_no_example_approves_a_plan_that_it_doesn_t_name() -> None:
    for path in EXAMPLES.iterdir():
        commands = path.read_text().replace("\\\n", "").splitlines()
        approving = [each for each in commands if "topicledger runs approve --config" in each]
        assert all("--plan" in each for each in approving), path


def test_on_github_only_comments_of_the_workflow_show_the_digest(tmp_path: Path) -> None:
    (tmp_path / "gh").write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" > {tmp_path}/asked; cat {tmp_path}/comments\n')
    (tmp_path / "gh").chmod(0o755)
    (tmp_path / "comments").write_text(comments(*(SHOWN + TO_APPROVE.format(each * 16) for each in "ab")))
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_REPOSITORY": "acme/topics"}
    command = [EXAMPLES / "github-plan.sh", "r-1", "7", "2026-01-01T13:00:00Z"]
    assert (
        subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout == "a" * 16 + "\n"
    )
    asked = (tmp_path / "asked").read_text()
    assert "repos/acme/topics/issues/7/comments?per_page=100 --paginate" in asked
    assert 'select(.user.login == "github-actions[bot]" and .updated_at == .created_at)' in asked


def test_on_gitlab_only_notes_of_the_pipeline_s_account_show_the_digest(gitlab: Gitlab) -> None:
    """The newest note comes first."""
    mine, other = {"id": 5}, {"id": 6}
    bodies = [SHOWN + TO_APPROVE.format(each * 16) + "\n\ndiff" for each in "cba"]
    notes = [
        {"author": author, "created_at": f"2026-01-0{day}T12:00:00.000Z", "body": body}
        for author, day, body in zip((other, mine, mine), (3, 2, 1), bodies, strict=True)
    ]
    done = gitlab("gitlab-plan.sh", "r-1", merge_requests=MERGED, user=mine, notes=notes)
    assert (done.returncode, done.stdout) == (0, "b" * 16 + "\n"), done.stderr
    assert "secret" not in done.stdout + done.stderr
    assert gitlab("gitlab-plan.sh", "r-1", merge_requests=MERGED, user=mine, notes=None).returncode != 0


def test_no_process_of_the_gitlab_example_has_the_token_in_its_arguments() -> None:
    for name in ("gitlab-approver.sh", "gitlab-plan.sh"):
        assert "curl" not in (EXAMPLES / name).read_text()
    for name in ("gitlab-ci.yml", "gitlab.sh"):
        text = (EXAMPLES / name).read_text()
        assert "--header" not in text
        assert text.count("$GITLAB_TOKEN") == text.count("curl --config -") > 0


def test_the_merger_is_compared_before_anything_is_loaded(workflow: dict[Any, Any]) -> None:
    names = [step.get("name") for step in steps(workflow, "apply") if "run" in step]
    assert names == ["The one who merged has no part in the change", "Apply"]
    *_, compares, finds, exports, applies = yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text())["apply"]["script"]
    assert compares == "/opt/topicledger/examples/ci/gitlab-approver.sh"
    assert "/gitlab-plan.sh" in finds
    assert exports == "export TOPICLEDGER_PLAN"
    assert "/apply.sh" in applies


def test_applies_queue_and_none_is_cancelled(workflow: dict[Any, Any]) -> None:
    """GitHub keeps one pending job of a concurrency group; a runner takes one job after the other."""
    apply = workflow["jobs"]["apply"]
    assert "concurrency" not in apply
    assert apply["runs-on"] == ["self-hosted", "kafka-apply"]
    gitlab = yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text())["apply"]
    assert gitlab["resource_group"] == "topics"
    assert gitlab["script"][:2] == ['git fetch origin "$CI_DEFAULT_BRANCH"', "git checkout --detach FETCH_HEAD"]


def test_expressions_of_github_reach_shells_as_variables_only(workflow: dict[Any, Any]) -> None:
    runs = [step["run"] for job in workflow["jobs"] for step in steps(workflow, job) if "run" in step]
    assert len(runs) == 5
    assert not [run for run in runs if "${{" in run]


@pytest.mark.thorough
def test_a_change_removes_rows_of_owners_whose_folders_it_touches(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def owners() -> subprocess.CompletedProcess[str]:
        git("add", "--all")
        git("commit", "--quiet", "--allow-empty", "--message", "change")
        command = [EXAMPLES / "owners.sh", "HEAD^1", "topics"]
        return subprocess.run(command, cwd=tmp_path, env=WITH_COMMAND, check=False, capture_output=True, text=True)

    git("init", "--quiet")
    for name in ("topics/a/one.yaml", "topics/b/two.yaml", "topics/c/three.yaml", "topics/all.yaml", "other/d/x.yaml"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{name}\n")
    git("add", "--all")
    git("commit", "--quiet", "--message", "first")
    (tmp_path / "topics" / "a" / "one.yaml").unlink()
    (tmp_path / "topics" / "b" / "two.yaml").rename(tmp_path / "topics" / "c" / "two.yaml")
    (tmp_path / "topics" / "all.yaml").write_text("changed\n")
    (tmp_path / "other" / "d" / "x.yaml").write_text("changed\n")
    assert owners().stdout.splitlines() == [f"--replace-owner={name}" for name in "abc"]
    assert owners().stdout == ""
    for name in "ab":
        (tmp_path / "topics" / name).mkdir(exist_ok=True)
        (tmp_path / "topics" / name / "one.yaml").write_text("changed\n")
    both = [f"--{option}={name}" for option in ("owner", "replace-owner") for name in "ab"]
    assert owners().stdout.splitlines() == both, "other owners' merged changes that aren't loaded stay out of the plan"
    (tmp_path / "topics" / "unowned").mkdir()
    for name in ("a", "unowned"):
        (tmp_path / "topics" / name / "one.yaml").write_text("changed again\n")
    assert owners().stdout.splitlines() == ["--replace-owner=a"], "rows without an owner belong to no --owner"
    (tmp_path / "topics" / "a" / "one.yaml").write_text("cluster: x\ntopics: [{topic: t}]\n")
    without = owners()
    assert (without.returncode, without.stdout) == (1, "")
    assert without.stderr == "topics/a/one.yaml:2: has no owner, in the folder of a\n"
    (tmp_path / "topics" / "--all").mkdir()
    (tmp_path / "topics" / "--all" / "x.yaml").write_text("x\n")
    refused = owners()
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "is no name of an owner" in refused.stderr


@pytest.mark.thorough
def test_a_manifest_in_the_folder_of_another_owner_fails_the_check(tmp_path: Path) -> None:
    """`--owner` of the folder would leave it out of the plan and of the load, and the check would pass."""
    folder = tmp_path / "topics" / "payments"
    folder.mkdir(parents=True)
    (folder / "own.yaml").write_text("cluster: a\ndefaults: {owner: ' Payments '}\ntopics: [{topic: t}]\n")
    (folder / "none.yaml").write_text("cluster: a\ntopics: [{topic: u}]\n")
    (folder / "other.csv").write_text(
        "cluster,principal,operation,resource_type,resource_name,owner\na,User:x,READ,TOPIC,t,orders\n"
    )
    (folder / "broken.yaml").write_text("topics: [")
    (folder / "link.yaml").symlink_to("/etc/hostname")
    (folder.parent / "unowned").mkdir()
    (folder.parent / "unowned" / "all.yaml").write_text("cluster: a\ntopics: [{topic: v}]\n")

    def check(*names: str) -> tuple[int, str]:
        command = [sys.executable, EXAMPLES / "check_owners.py", "topics"]
        changed = "".join(f"topics/{name}\0" for name in names)
        done = subprocess.run(command, cwd=tmp_path, input=changed, check=False, capture_output=True, text=True)
        return done.returncode, done.stderr

    assert check("payments/own.yaml", "payments/broken.yaml", "payments/link.yaml", "payments/gone.yaml") == (0, "")
    assert check("unowned/all.yaml", "all.yaml", "gone/x.yaml") == (0, "")
    assert check("payments/none.yaml", "payments/other.csv") == (
        1,
        "topics/payments/none.yaml:2: has no owner, in the folder of payments\n"
        "topics/payments/other.csv:2: has the owner orders, in the folder of payments\n",
    )


@pytest.mark.parametrize(("allow", "code"), [("", 0), ("deletes=2", 2)])
def test_an_approval_that_allows_something_must_succeed(tmp_path: Path, allow: str, code: int) -> None:
    """A finished plan takes no approval, and that is fine; a wrong --allow must not lead to an apply without it."""
    command, called = tmp_path / "topicledger", tmp_path / "called"
    command.write_text(f'#!/bin/sh\necho "$@" >>{called}\n[ "$1" = apply ] || exit 2\n')
    command.chmod(0o755)
    plan, path = "0123456789abcdef", f"{tmp_path}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "TOPICLEDGER_CONFIG": "run.toml", "TOPICLEDGER_PLAN": plan}
    arguments = [EXAMPLES / "apply.sh", "run-1", "bob", "topics"]
    done = subprocess.run(arguments, env={**environment, "TOPICLEDGER_ALLOW": allow}, check=False)
    approve = f"runs approve --config run.toml run-1 --by bob --note merged --plan {plan}"
    apply = "apply --config run.toml --run-id run-1 --wait topics"
    assert done.returncode == bool(code)
    assert called.read_text().splitlines() == ([f"{approve} --allow {allow}"] if code else [approve, apply])


@pytest.mark.parametrize("code", [0, 5, 2])
def test_the_plan_is_written_outside_the_checkout(tmp_path: Path, code: int) -> None:
    """A change may have a link of any name in the checkout."""
    secret, checkout, outside = tmp_path / "secret", tmp_path / "checkout", tmp_path / "temp" / "plan.md"
    secret.write_text("hunter2")
    checkout.mkdir()
    outside.parent.mkdir()
    (checkout / "plan.md").symlink_to(secret)
    command = tmp_path / "topicledger"
    command.write_text(f'#!/bin/sh\n[ "$1" = runs ] && echo "the plan" || {{ echo "# why" >&2; exit {code}; }}\n')
    command.chmod(0o755)
    arguments = [EXAMPLES / "plan.sh", outside, "run-1", "alice", "topics"]
    plan, path = "0123456789abcdef", f"{tmp_path}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "TOPICLEDGER_CONFIG": "run.toml", "TOPICLEDGER_PLAN": plan}
    done = subprocess.run(arguments, cwd=checkout, env=environment, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1 if code else 0, "# why\n")
    refused = "The plan of run `run-1` ended with exit code 2:\n\n    # why\n"
    assert outside.read_text() == (refused if code == 2 else "the plan\n")
    assert "hunter2" not in outside.read_text()
    assert secret.read_text() == "hunter2"
