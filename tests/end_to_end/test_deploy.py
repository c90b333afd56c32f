"""The commands in deploy/ and of the page for Slurm, run by bash as a scheduler would run them: their ranks and merges
make the run of one process. The files in deploy/ were checked against their schemas by hand:
deploy/README.md says when.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

import reasonrag as package
from reasonrag.data.atlas import write_world
from tests.helpers.processes import free_port, simulated_endpoint, until

ROOT = Path(__file__).parents[2]
LIMIT = 6
N = 2
"""Ranks here, whatever the files say."""
SBATCH = """\
#!/bin/bash
# Keeps how it was called, runs the job at once, array index by array index, and prints a job id as --parsable does.
set -e
printf '%s\\n' "$*" >> ../calls
if [ "${@: -2:1}" = --wrap ]; then
    exec bash -c "${@: -1}"
fi
range=$(sed -n 's/^#SBATCH --array=//p' "${@: -1}")
for SLURM_ARRAY_TASK_ID in $(seq "${range%-*}" "${range#*-}"); do
    export SLURM_ARRAY_TASK_ID
    bash "${@: -1}" >&2
done
echo "1001;cluster"
"""


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "deploy" / name).read_text("utf-8")))


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    """The folder in the place of the shared mount, with what is explored; `reasonrag` is on the path of scripts."""
    shared, programs = tmp_path / "shared", tmp_path / "bin"
    shared.mkdir()
    programs.mkdir()
    ours = f'#!/bin/bash\nexec {shlex.quote(sys.executable)} -m reasonrag "$@"\n'
    for name, script in (("reasonrag", ours), ("sbatch", SBATCH)):
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    (shared / "reasonrag.toml").write_text(f'[generate]\ndataset = "atlas"\nlimit = {LIMIT}\nmodel = "offline"\n')
    return shared


@contextmanager
def started(script: str, mount: Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """The script in bash, in the folder that is mounted."""
    environment = os.environ | {"PATH": f"{mount.parent / 'bin'}:{os.environ['PATH']}"} | variables
    command = ["bash", "-c", script.replace("/shared", shlex.quote(str(mount)))]
    with (mount.parent / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=mount, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def run_together(scripts: list[tuple[str, dict[str, str]]], mount: Path) -> None:
    """Scripts with their variables, at the same time, each of which must end well."""
    with ExitStack() as stack:
        running = [stack.enter_context(started(script, mount, **variables)) for script, variables in scripts]
        until(lambda: all(each.poll() == 0 for each in running) or any(each.poll() for each in running))
        ends = [each.poll() for each in running]
    assert ends == [0] * len(scripts), (mount.parent / "log").read_text()


@contextmanager
def serving(script: str, mount: Path) -> Iterator[str]:
    """The server that a script starts for other machines, on a port that is free here; its address."""
    here = free_port()
    script = script.replace("--host 0.0.0.0", f"--host 127.0.0.1 --port {here}")
    with started(script, mount) as server:
        until(lambda: answers(here) or server.poll() is not None)
        assert server.poll() is None, (mount.parent / "log").read_text()
        yield f"127.0.0.1:{here}"


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def assert_the_run_of_one_process(run: Path, **changed: Any) -> None:
    one = package.generate(**({"dataset": "atlas", "limit": LIMIT, "model": "offline", "run": "one"} | changed))
    assert (one.done, one.failed) == (LIMIT, 0)
    assert (run / "rollouts.jsonl").read_bytes() == Path("one/rollouts.jsonl").read_bytes()
    assert len(list((run / "completions").iterdir())) == N


def test_the_indexed_job_and_its_merge(mount: Path) -> None:
    """All pods at once: the merge waits for the ranks."""
    every = {(each["kind"], each["metadata"]["name"]): each["spec"] for each in documents("indexed-job.yaml")}
    job = every["Job", "reasonrag-ranks"]
    [rank], [merge] = (
        every["Job", name]["template"]["spec"]["containers"] for name in ("reasonrag-ranks", "reasonrag-merge")
    )
    assert {"name": "RANKS", "value": str(job["completions"])} in rank["env"]
    assert job["completions"] == job["parallelism"]
    assert {tuple(each["command"]) for each in (rank, merge)} == {("bash", "-c")}
    ranks = [(rank["args"][0], {"RANKS": str(N), "JOB_COMPLETION_INDEX": str(each)}) for each in range(N)]
    run_together([(merge["args"][0], {"RETRY_S": "1"}), *ranks], mount)
    assert_the_run_of_one_process(mount / "runs" / "main")


def test_the_task_of_skypilot(mount: Path) -> None:
    """Node 0 merges."""
    [task] = documents("skypilot.yaml")
    about = {"SKYPILOT_NUM_NODES": str(N)} | task["envs"] | {"RETRY_S": "1"}
    run_together([(task["run"], about | {"SKYPILOT_NODE_RANK": str(each)}) for each in range(N)], mount)
    assert_the_run_of_one_process(mount / "runs" / "main")


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'reasonrag[ray]'")
def test_the_entrypoint_of_the_rayjob(mount: Path) -> None:
    """On a cluster of this machine."""
    [job] = documents("rayjob.yaml")
    cluster = job["spec"]["rayClusterSpec"]
    [workers] = cluster["workerGroupSpecs"]
    entrypoint = job["spec"]["entrypoint"]
    assert f"--workers {workers['replicas']} " in entrypoint
    [built_with] = re.findall(r"ARG RAY=(\S+)", (ROOT / "deploy" / "Dockerfile").read_text("utf-8"))
    assert cluster["rayVersion"] == built_with
    here = entrypoint.replace(f"--workers {workers['replicas']}", f"--workers {N}")
    run_together([(here, {})], mount)
    assert_the_run_of_one_process(mount / "runs" / "main")


def test_the_services_of_compose(mount: Path) -> None:
    """With the simulated endpoint in the place of vLLM."""
    [file] = documents("compose.yaml")
    services = file["services"]
    script = {name: each["command"][2].replace("$$", "$") for name, each in services.items() if name != "vllm"}
    ranks = [name for name in services if name.startswith("rank-")]
    assert set(services["merge"]["depends_on"]) == set(ranks)
    assert len(ranks) == N
    (mount / "corpus.jsonl").write_bytes((write_world(Path("atlas")) / "corpus.jsonl").read_bytes())
    with simulated_endpoint() as vllm, serving(script["retriever"], mount) as retriever:
        places = {"http://vllm:8000/v1": vllm, "retriever:8977": retriever}
        asked = []
        for name in ranks:
            assert all(each in script[name] for each in places)
            for written, here in places.items():
                script[name] = script[name].replace(written, here)
            asked.append((script[name], services[name]["environment"]))
        run_together(asked, mount)
        run_together([(script["merge"], {})], mount)
        [model] = re.findall(r"--model (\S+)", script[ranks[0]])
        assert model == services["vllm"]["command"][1]
        assert_the_run_of_one_process(mount / "runs" / "main", base_url=[vllm], model=model)


def test_the_array_job_of_the_page_for_slurm(mount: Path) -> None:
    """As it stands there, with two ranks; sbatch is a stand-in."""
    page = (ROOT / "docs" / "how-to" / "scale-out.md").read_text("utf-8")
    job, submit = re.findall(r"```text\n(#!/bin/bash\n#SBATCH.*?|job=.*?)```", page, re.DOTALL)
    assert job.count("\n") == 12
    for old, new in (("/shared", str(mount)), ("--array=0-7", f"--array=0-{N - 1}"), ("TASK_ID/8", f"TASK_ID/{N}")):
        assert old in job
        job = job.replace(old, new)
    (mount / "job.sh").write_text(job)
    run_together([(f"set -e; {submit}", {})], mount)
    assert (mount.parent / "calls").read_text().splitlines() == [
        "--parsable job.sh",
        f"--dependency=afterany:1001 --wrap cd {mount} && reasonrag merge runs/main",
    ]
    assert_the_run_of_one_process(mount / "runs" / "main")
