# SPDX-License-Identifier: Apache-2.0
"""Planners started by hand beside a stack that has none of its own, and doubles of the services outside."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

import redis
import requests

from conftest import HANG_S, ROOT, wait_until
from program import ask, binary, is_alive

STATES = ("queued planned resource_preparing submitting scheduling validating in_progress finalizing cancelling completed "
          "failed expired cancelled resource_failed submit_failed").split()
ENDED = STATES[STATES.index("completed"):]
QUICK = {  # so that what takes over, polls or waits does so within a test's patience
    "WB_PLANNER_POLL_S": "1", "WB_PLANNER_LEASE_MS": "1500", "WB_PLANNER_CLAIM_MS": "1500", "WB_PLANNER_CREATE_WAIT_S": "1",
    "WB_PLANNER_LAUNCH_WAIT_S": "1",
    "WB_PLANNER_SWEEP_S": "1", "WB_FAULTS_ALLOW": "on",
}


class Double:
    """A server that speaks a provider's or the batch service's API: tests/fake/fake_*.py."""

    def __init__(self, name, *args, tls=None):
        """tls: folder with a certificate and its key, see certificate()."""
        files = ["--tls", f"{tls}/cert", f"{tls}/key"] if tls else []
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "fake" / f"fake_{name}.py"), *files, *args],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")
        self.verify = f"{tls}/cert" if tls else True
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{json.loads(self.process.stdout.readline())['port']}"

    def state(self):
        return requests.get(self.url + "/_state", timeout=HANG_S, verify=self.verify).json()

    def order(self, **order):
        answer = requests.post(self.url + "/_control", json=order, timeout=HANG_S, verify=self.verify)
        assert answer.status_code < 300, answer.text

    def fault(self, match, do, **more):
        self.order(faults=[{"match": match, "do": do, **more}])

    def calls(self, method, path):
        return [r for r in self.state()["requests"] if r["method"] == method and r["path"] == path]

    def close(self):
        self.process.stdin.close()
        self.process.wait(HANG_S)


def certificate(folder):
    """A certificate for 127.0.0.1 that nobody but itself vouches for, and its key."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", f"{folder}/key",
                    "-out", f"{folder}/cert"], check=True, capture_output=True)
    return folder


class Planner:
    """weighbridge-planner as one process, without a supervisor that would start it again."""
    program, quick = "weighbridge-planner", QUICK

    def __init__(self, stack, *args, ini="", **env):
        self.folder = Path(tempfile.mkdtemp(prefix="wb-planner-", dir="/tmp"))
        self.log = self.folder / "log"
        self.token = stack.env["WB_ADMIN_TOKEN"]
        environ = {**stack.environ, **self.quick, **{k: str(v) for k, v in env.items()}}
        config = self.folder / "planner.ini"
        config.write_text(re.sub(r"\[pool [^\[]*", "", (stack.var / "weighbridge.ini").read_text()) + "\n" + ini)
        with socket.socket(socket.AF_UNIX) as listener, open(self.log, "wb") as log:
            listener.bind(str(self.folder / "planner.sock"))
            listener.listen()
            self.process = subprocess.Popen(
                [binary(stack, self.program), "--config", str(config), *args], cwd="/",
                stdin=subprocess.DEVNULL if args else listener, stdout=log, stderr=log, env=environ)
        self.pid = self.process.pid

    def text(self):
        return self.log.read_text(errors="replace")

    def metric(self, name):
        status, text = ask(self.folder / "planner.sock", "/metrics", token=self.token)
        assert status == 200, text
        return float(re.search(rf"^{name} (.*)$", text, re.M)[1])

    def joined(self):
        wait_until(lambda: self.process.poll() is not None or 'msg="planner joined"' in self.text(), "a planner")
        assert self.process.poll() is None, self.text()
        return self

    def leads(self):
        wait_until(lambda: self.process.poll() is not None or "msg=leads" in self.text(), "a leader")
        assert self.process.poll() is None, self.text()
        return self

    def send(self, sig):
        os.kill(self.pid, sig)

    def died(self):
        """How it ended: waits for that."""
        return self.process.wait(HANG_S)

    def alive(self):
        return is_alive(self.pid)

    def stop(self):
        if self.process.poll() is None:
            self.send(signal.SIGCONT)
            self.process.terminate()
        try:
            return self.process.wait(HANG_S)
        finally:
            self.process.kill()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            status = self.stop()
        finally:
            if kind:
                print(self.text()[-6000:])
            shutil.rmtree(self.folder, ignore_errors=True)
        assert kind or status in (0, -signal.SIGKILL), f"ended with {status}"


class Fleet:
    """Several planners, each replaced when it dies."""

    def __init__(self, yard, n, **env):
        self.yard, self.env, self.losses = yard, env, 0
        self.planners = [yard.planner(**env) for _ in range(n)]

    def tend(self):
        for i, planner in enumerate(self.planners):
            if planner.process.poll() is not None:
                planner.__exit__(None)  # says how it may have ended
                self.losses += 1
                self.planners[i] = self.yard.planner(**self.env)

    def renew(self):
        """All of them anew, as the environment is by now."""
        self.__exit__(None, None, None)
        self.planners = [self.yard.planner(**self.env) for _ in self.planners]

    def __enter__(self):
        return self

    def __exit__(self, *what):
        with ExitStack() as all_of_them:
            for planner in self.planners:
                all_of_them.callback(planner.__exit__, *what)


class Yard:
    """A stack with batch jobs, the batch service's double and planners."""

    def __init__(self, stack):
        self.stack = stack
        self.batches = Double("batch_service")
        self.doubles = [self.batches]
        self.planners = []
        self.env = {"WB_BATCH_URL": self.batches.url}
        self.ini = ""
        self.pool("default", max_concurrent_provisioning=4)

    def double(self, name, *args, **options):
        self.doubles.append(Double(name, *args, **options))
        return self.doubles[-1]

    def planner(self, *args, **env):
        return Planner(self.stack, *args, ini=self.ini, **{**self.env, **env})

    def mark(self):
        """A file that does not exist yet, for a fault that happens once."""
        return Path(tempfile.mkdtemp(prefix="mark-", dir=self.stack.var)) / "mark"

    def pool(self, name, **options):
        self.ini = re.sub(rf"\[pool {name}\][^\[]*", "", self.ini)
        self.ini += f"[pool {name}]\n" + "".join(f"{k} = {v}\n" for k, v in options.items())

    def cloud(self, **options):
        """A pool `cloud` at a double of Lambda Cloud."""
        provider = self.double("lambda")
        self.env |= {"WB_LAMBDA_CLOUD_URL": provider.url + "/api/v1", "WB_LAMBDA_CLOUD_KEY": "lambda-key",
                     "WB_LAMBDA_CLOUD_SSH_KEYS": "ci"}
        self.pool("cloud", **{"provisioner": "lambdaCloud", "max_concurrent_provisioning": 4, **options})
        self.stack.sql("INSERT INTO pool (name) VALUES ('cloud') ON CONFLICT DO NOTHING")
        return provider

    def kubernetes(self, folder, **options):
        """A pool `cluster` at a double of a Kubernetes API server, with https and a token in a file; both in that folder."""
        provider = self.double("kubernetes", "--key", "bound-token-1", tls=certificate(folder))
        (folder / "token").write_text("bound-token-1\n")
        self.env |= {"WB_KUBERNETES_URL": provider.url, "WB_KUBERNETES_CA_FILE": provider.verify,
                     "WB_KUBERNETES_TOKEN_PATH": str(folder / "token")}
        self.pool("cluster", **{"provisioner": "kubernetes", "max_concurrent_provisioning": 4, **options})
        self.stack.sql("INSERT INTO pool (name) VALUES ('cluster') ON CONFLICT DO NOTHING")
        return provider

    def aws(self, folder, **options):
        """A pool `ec2` at a double of AWS, with https by a certificate in that folder."""
        provider = self.double("aws", tls=certificate(folder))
        self.env |= {"WB_AWS_URL": provider.url, "WB_AWS_CA_FILE": provider.verify, "WB_AWS_REGION": "eu-test-1",
                     "WB_AWS_ACCESS_KEY_ID": "AKIATEST", "WB_AWS_SECRET_ACCESS_KEY": "aws-secret-key",
                     "WB_AWS_IMAGE_ID": "ami-0123456789abcdef0", "WB_AWS_SUBNET_IDS": "subnet-a, subnet-b"}
        self.pool("ec2", **{"provisioner": "aws", "max_concurrent_provisioning": 4, **options})
        self.stack.sql("INSERT INTO pool (name) VALUES ('ec2') ON CONFLICT DO NOTHING")
        return provider

    def pods(self, **options):
        """A pool `pods` at a double of RunPod."""
        provider = self.double("runpod")
        self.env |= {"WB_RUNPOD_URL": provider.url + "/v1", "WB_RUNPOD_KEY": "runpod-key",
                     "WB_RUNPOD_SSH_PUBLIC_KEY": "ssh-ed25519 AAAA test"}
        self.pool("pods", **{"provisioner": "runpod", "max_concurrent_provisioning": 4, **options})
        self.stack.sql("INSERT INTO pool (name) VALUES ('pods') ON CONFLICT DO NOTHING")
        return provider

    def close(self):
        for double in self.doubles:
            double.close()
        self.empty()

    # --- jobs ---

    def empty(self):
        self.stack.sql("TRUNCATE job CASCADE")
        self.stack.sql("TRUNCATE job_run, job_event, job_count, intent, provision, local_slot, chore, planner_lease, policy_turn")
        self.stack.sql("DELETE FROM pool WHERE name <> 'default'")
        self.stack.sql("UPDATE pool SET drained_at = NULL, drained_by = ''")

    def create(self, **fields):
        body = {"input_dataset": "file-1", "endpoint": "/v1/chat/completions", **fields}
        answer = self.stack.call("POST", "/api/v1/jobs", body, token="submitter")
        assert answer.status_code == 200, answer.text
        return answer.json()["id"]

    def enqueue(self, n=1, pool="default", window_minutes=1440, request="{}", **columns):
        """Straight into the tables, as job_enqueue() does it: the ids, as uuids."""
        run = {"replicas": 1, "gpus": 0, "prio": 0, "queue_deadline": "24 hours", "tenant": "test", "gpu_type": "", "name": "job",
               **columns}
        rows = self.stack.sql("""
            WITH j AS (INSERT INTO job (pool_id, created_by, name, endpoint, model, input_file, completion_window,
                       window_minutes, request)
                  SELECT p.id, 'test', %s, '/v1/chat/completions', 'm', 'file-1', '24h', %s, %s::jsonb
                  FROM pool p, generate_series(1, %s) n WHERE p.name = %s RETURNING *),
            r AS (INSERT INTO job_run (job_id, pool_id, tenant, prio, actor, enqueued_at, queue_deadline, replicas, gpus,
                       gpu_type)
                  SELECT id, pool_id, %s, %s, 'test', created_at, created_at + %s::interval, %s, %s, %s FROM j)
            SELECT id FROM j""",
            (run["name"], window_minutes, request, n, pool, run["tenant"], run["prio"], run["queue_deadline"], run["replicas"],
             run["gpus"], run["gpu_type"]))
        assert len(rows) == n, rows
        return [row[0] for row in rows]

    def job(self, job_id):
        answer = self.stack.get(f"/api/v1/jobs/job_{job_id.removeprefix('job_')}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def state(self, job_id):
        number = self.stack.sql("SELECT coalesce(r.state, j.final_state) FROM job j LEFT JOIN job_run r ON r.job_id = j.id"
                                " WHERE j.id = %s::uuid", (job_id.removeprefix("job_"),))
        return STATES[number[0][0]]

    def states(self):
        """How many jobs are in each state."""
        rows = self.stack.sql("SELECT coalesce(r.state, j.final_state), count(*) FROM job j"
                              " LEFT JOIN job_run r ON r.job_id = j.id GROUP BY 1")
        return {STATES[state]: n for state, n in rows}

    def hurry(self, queued=True):
        """Everything that waits for its time is due: so that tests wait for what happens, not for its pace. Without what is
        queued, if so told."""
        for column, due in (("next_poll_at", "lease_owner IS NULL"), ("not_before", "state = 0"))[:1 + queued]:  # never in a planner's way
            self.stack.sql(f"UPDATE job_run SET {column} = now() WHERE job_id IN (SELECT job_id FROM job_run WHERE {due}"
                           f" AND {column} > now() FOR UPDATE SKIP LOCKED)")
        self.stack.sql("UPDATE intent SET next_at = now() WHERE state = 0 AND lease_owner IS NULL AND next_at > now()")
        with suppress(redis.ConnectionError):  # planners look every second by themselves
            self.stack.kv().publish("wb:1:planner", "test")

    def reaches(self, job_id, state, timeout_s=HANG_S, hurry=True):
        def probe():
            if hurry:
                self.hurry()
            now = self.state(job_id)
            assert now == state or now not in ENDED, f"{job_id} is {now}: {self.errors(job_id)}"
            return now == state
        wait_until(probe, f"{job_id} {state}", timeout_s)

    def errors(self, job_id):
        return self.stack.sql("SELECT coalesce(r.error_code, j.error_code), coalesce(r.error, j.error) FROM job j"
                              " LEFT JOIN job_run r ON r.job_id = j.id WHERE j.id = %s::uuid", (job_id.removeprefix("job_"),))[0]

    def all_end(self, state="completed", timeout_s=HANG_S):
        def probe():
            self.hurry()
            return set(self.states()) <= {state}
        wait_until(probe, f"all {state}", timeout_s)

    def history(self, job_id):
        rows = self.stack.sql("SELECT to_state FROM job_event WHERE job_id = %s::uuid ORDER BY at, seq",
                              (job_id.removeprefix("job_"),))
        return [STATES[row[0]] for row in rows]

    def nothing_left(self, timeout_s=HANG_S):
        """No machine is out, no release is due, no batch of ours runs."""
        wait_until(lambda: self.stack.sql("SELECT (SELECT count(*) FROM local_slot) + (SELECT count(*) FROM intent"
                                          " WHERE state = 0 AND kind >= 3)")[0][0] == 0, "slots and releases", timeout_s)
        wait_until(lambda: self.batches.state()["alive"] == 0, "no batch alive", timeout_s)

    def batches_of(self, job_id):
        job_id = job_id.removeprefix("job_")
        return [b for b in self.batches.state()["batches"] if (b.get("aibrix") or {}).get("job_id") == job_id]

    def most_provisioning(self):
        """The most jobs that were planned or preparing at any moment, by the audit trail."""
        rows = self.stack.sql("""
            SELECT coalesce(max(now_there), 0) FROM (SELECT sum(step) OVER (ORDER BY at, seq) AS now_there FROM (
                SELECT at, seq, (to_state IN (1, 2))::int - (coalesce(from_state, -1) IN (1, 2))::int AS step FROM job_event) s) m""")
        return rows[0][0]
