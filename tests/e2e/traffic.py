# SPDX-License-Identifier: Apache-2.0
"""Jobs of every kind, each brought into the phase that its kind is about, and what must hold when all of them have ended:
jobs contract, section 6."""
import json
import random

from conftest import wait_until
from planning import ENDED, STATES

H100 = {"model_template": {"name": "t", "version": "v1", "spec": {"accelerator": {"type": "H100", "count": 1}}}}
L40 = {"model_template": {"name": "t", "version": "v1", "spec": {"accelerator": {"type": "NVIDIA L40", "count": 1}}}}
# local: on our own slots; cloud: on machines of Lambda Cloud; cancelled: by its user, in a phase drawn by lot; late: its
# batch is past its deadline; lost: its machines vanish under its batch; stuck: machines that are never ready
KINDS = ("local", "cloud", "cancelled", "late", "lost", "stuck")
PHASES = STATES[STATES.index("queued"):STATES.index("cancelling")]


class Traffic:
    def __init__(self, yard, seed=None):
        self.yard = yard
        self.random = random.Random(seed)
        self.cloud = yard.cloud(max_concurrent_provisioning=20, policy="capacity", catalog_s=1)
        self.pods = yard.pods(max_concurrent_provisioning=20)
        self.cloud.order(capacity={"gpu_1x_h100_pcie": {"us-west-1": 10 ** 6}})
        self.pods.order(capacity={"NVIDIA L40": 10 ** 6}, stuck=True)
        yard.pool("default", max_concurrent_provisioning=20)
        yard.env["WB_LOCAL_SLOTS"] = "1000"
        yard.env["WB_PLANNER_POLL_S"] = "30"  # machines are looked at with every poll; Yard.hurry() sets the pace
        yard.env["WB_PLANNER_EXPIRY_GRACE_S"] = "0"
        self.kind, self.phase, self.done = {}, {}, set()

    def add(self, kind, n=1):
        if kind == "stuck":
            ids = self.yard.enqueue(n, pool="pods", gpus=1, request=json.dumps(L40))
        elif kind == "cloud" or kind == "lost" or (kind != "local" and self.random.random() < 0.5):
            ids = self.yard.enqueue(n, pool="cloud", gpus=1, request=json.dumps(H100))
        else:
            ids = self.yard.enqueue(n)
        for job in ids:
            self.kind[job] = kind
            self.phase[job] = STATES.index(self.random.choice(PHASES))
        return ids

    def live(self):
        return self.yard.stack.sql("SELECT job_id, state, coalesce(batch_id, '') FROM job_run")

    def drive(self):
        """Brings each job that is ripe into what its kind is about. How many jobs live."""
        live = self.live()
        for job, state, batch in live:
            act = getattr(self, "make_" + self.kind[job], None)
            if act and job not in self.done and state < STATES.index("cancelling") and act(job, state, batch):
                self.done.add(job)
        self.yard.hurry()
        return len(live)

    def make_cancelled(self, job, state, _batch):
        if state < self.phase[job]:
            return False
        answer = self.yard.stack.call("POST", f"/api/v1/jobs/job_{job}/cancel", {})
        if answer.status_code == 503 and answer.headers["Retry-After"]:  # the row was held for longer than a request waits
            return False
        assert answer.status_code == 200, answer.text
        return True

    def make_late(self, _job, _state, batch):
        if batch:
            self.yard.batches.order(batch={batch: {"expires_at": 1}})
        return bool(batch)

    def make_lost(self, job, _state, batch):
        if batch:
            self.cloud.order(vanish=[i["id"] for i in self.cloud.state()["instances"] if job in i["name"]])
        return bool(batch)

    def make_stuck(self, job, state, _batch):
        if STATES[state] == "resource_preparing":
            self.yard.stack.sql("UPDATE job_run SET queue_deadline = now() WHERE job_id = %s::uuid", (job,))
        return STATES[state] == "resource_preparing"

    def all_end(self, tend=None, timeout_s=120):
        def probe():
            if tend:
                tend()
            return self.drive() == 0
        wait_until(probe, "all jobs to end", timeout_s)

    # --- what must hold ---

    def open_intents(self):
        return self.yard.stack.sql("SELECT count(*) FROM intent WHERE state = 0")[0][0]

    def machines(self):
        return (self.cloud.state()["alive"] + self.pods.state()["alive"] +
                self.yard.stack.sql("SELECT count(*) FROM local_slot")[0][0])

    def nothing_is_left(self, timeout_s=60):
        """Every intent is done, no machine is alive, and no batch that was not told to end. What was launched in all."""
        wait_until(lambda: self.yard.hurry() or self.open_intents() == 0, "all intents to be done", timeout_s)
        wait_until(lambda: self.machines() == 0, "no machine left", timeout_s)
        alive = [b for b in self.yard.batches.state()["batches"] if b["status"] not in (*ENDED, "cancelling")]
        assert not alive, alive
        return self.cloud.state()["launched"] + self.pods.state()["launched"]

    def each_ended_once(self):
        """One terminal state each, by the row and by the audit trail."""
        ends = self.yard.stack.sql("""
            SELECT j.id, j.final_state, array_remove(array_agg(e.to_state) FILTER (WHERE e.to_state >= 9), NULL)
            FROM job j LEFT JOIN job_event e ON e.job_id = j.id GROUP BY 1, 2""")
        wrong = [(job, state, seen) for job, state, seen in ends if state is None or seen != [state]]
        assert not wrong and len(ends) == len(self.kind), wrong
        return {state: n for state in ENDED if (n := sum(STATES[s] == state for _, s, _ in ends))}

    def batches_by_job(self):
        found = {}
        for batch in self.yard.batches.state()["batches"]:
            found.setdefault(batch["aibrix"]["job_id"], []).append(batch)
        return found

    def one_batch_each(self):
        """Exactly one batch for each job that has one, the one that it knows."""
        known = dict(self.yard.stack.sql("SELECT id, batch_id FROM job WHERE coalesce(batch_id, '') <> ''"))
        made = {job: [b["id"] for b in batches] for job, batches in self.batches_by_job().items()}
        assert all(len(ids) == 1 for ids in made.values()), made
        wrong = {job: (batch, made.get(job)) for job, batch in known.items() if made.get(job) != [batch]}
        assert not wrong
        return len(made)
