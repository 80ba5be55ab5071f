# SPDX-License-Identifier: Apache-2.0
"""What is measured of batch jobs. Big tables are filled once by SQL; the planner is one process beside the stack."""
import http.client
import json
import re
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager

from stack import ROOT, Stack, say

# nginx as a batch service whose batches run for ever, and which is never what limits a planner.
BATCHES = """
location ~ ^/bench/v1/batches(/(?<bench_id>[A-Za-z0-9_-]+))?$ {
    access_log off;
    default_type application/json;
    return 200 '{"id":"$bench_id","object":"batch","endpoint":"/v1/chat/completions","input_file_id":"file-1","completion_window":"24h","status":"in_progress","created_at":1,"expires_at":99999999999,"request_counts":{"total":10,"completed":5,"failed":0}}';
}
"""
# The rows that one enqueue makes, and the answer that it reads.
ENQUEUE = """WITH j AS (INSERT INTO job (pool_id, created_by, name, endpoint, model, input_file, completion_window, window_minutes, request)
 SELECT p.id, 'submitter', '', '/v1/chat/completions', '', 'file-1', '24h', 1440, '{"replicas":1}' FROM pool p WHERE p.name = 'default' RETURNING *),
 r AS (INSERT INTO job_run (job_id, pool_id, tenant, actor, enqueued_at, queue_deadline)
 SELECT j.id, j.pool_id, 'submitter', 'submitter', j.created_at, j.created_at + interval '1 day' FROM j RETURNING *),
 f AS (INSERT INTO job_file_ref (file_id, job_id, role) SELECT j.input_file, j.id, 0 FROM j)
 SELECT j.*, r.* FROM j JOIN r ON r.job_id = j.id;
"""
# $1: how many have ended. Past the triggers, which would take an hour: states 9 and 10, 200 users.
ENDED = """INSERT INTO job (pool_id, created_by, name, endpoint, model, input_file, completion_window, window_minutes, request, created_at,
  final_state, finished_at, stamps, attempts, batch)
 SELECT 1, 'user' || i %% 200, 'job ' || i, '/v1/chat/completions', 'm', 'file-' || i, '24h', 1440,
  jsonb_build_object('replicas', 1, 'model_template', jsonb_build_object('name', 't', 'version', 'v1', 'spec', jsonb_build_object(
   'engine', jsonb_build_object('type', 'vllm', 'image', 'vllm/vllm-openai:latest'), 'accelerator', jsonb_build_object('type', 'H100')))),
  now() - (%(n)s + 200000 - i) * interval '1 s', CASE WHEN i %% 100 = 0 THEN 10 ELSE 9 END, now(), ARRAY[1,2,3]::bigint[], 1,
  '{"status":"completed","request_counts":{"total":10,"completed":10,"failed":0},"output_file_id":"o"}'
 FROM generate_series(1, %(n)s) i"""
QUEUED = """INSERT INTO job (pool_id, created_by, name, endpoint, model, input_file, completion_window, window_minutes, request, created_at)
 SELECT 1, 'user' || i %% 200, 'queued ' || i, '/v1/chat/completions', 'm', 'file-q' || i, '24h', 1440, '{"replicas":1}',
  now() - (%(n)s - i) * interval '1 ms' FROM generate_series(1, %(n)s) i"""
RUNS = """INSERT INTO job_run (job_id, pool_id, tenant, enqueued_at, queue_deadline, state, batch_id, batch, batch_at, stamps, next_poll_at, attempts, expires_at)
 SELECT id, 1, created_by, created_at, now() + interval '1 day', %(state)s, CASE WHEN %(state)s > 3 THEN 'batch-' || seq END, NULL, NULL,
  ARRAY[1,1,1,1,1,1,1]::bigint[], now(), 1, now() + interval '1 day' FROM job WHERE final_state IS NULL AND name LIKE 'queued %%'"""


class JobStack(Stack):
    services = ("postgres", "redis", "operations", "jobs", "nginx")

    def __init__(self, durable=False, **env):
        super().__init__(durable=durable)
        self.environ |= env

    @property
    def env(self):
        """As the planners of the end-to-end tests look for it."""
        return self.settings

    def sql(self, text, args=None, superuser=False):
        import psycopg2  # --help is to work before anything is installed
        url = self.settings["WB_PGURL"]
        db = psycopg2.connect(re.sub("user=weighbridge$", "user=postgres", url) if superuser else url)
        db.autocommit = True
        try:
            with db.cursor() as c:
                c.execute(text, args)
                return c.fetchall() if c.description else None
        finally:
            db.close()

    def one(self, text, args=None):
        return self.sql(text, args)[0][0]

    def fill(self, ended=0, queued=0, state=None):
        """Jobs as a planner would have left them. state: of those that did not end, in place of queued."""
        quick = "SET session_replication_role = replica; "
        if ended:
            self.sql(quick + ENDED, {"n": ended}, superuser=True)
        if queued:
            self.sql(quick + QUEUED, {"n": queued}, superuser=True)
            self.sql(quick + RUNS, {"state": state or 0}, superuser=True)
        self.sql("INSERT INTO job_count SELECT 1, coalesce(r.state, j.final_state), 0, count(*), count(*) FROM job j"
                 " LEFT JOIN job_run r ON r.job_id = j.id GROUP BY 2 ON CONFLICT DO NOTHING")
        self.sql("VACUUM ANALYZE", superuser=True)

    @contextmanager
    def planner(self, batch_url, **env):
        sys.path.insert(0, str(ROOT / "tests" / "e2e"))
        from planning import Planner
        pool = f"[pool default]\nmax_concurrent_provisioning = {env.pop('provisioning', 4)}\n[local]\nslots = {env.pop('slots', 4)}\n"
        ini = self.var / "weighbridge.ini"
        ini.write_text(re.sub(r"\[local\][^\[]*", "", ini.read_text()))
        usual = {"WB_PLANNER_POLL_S": "5", "WB_PLANNER_LEASE_MS": "15000", "WB_PLANNER_CLAIM_MS": "30000", "WB_PLANNER_SWEEP_S": "300", "WB_FAULTS_ALLOW": "off"}
        with Planner(self, ini=pool, **{**usual, "WB_BATCH_URL": batch_url, **env}) as p:
            yield p


class Pages:
    """Pages of the list, one at a time over one kept connection."""

    def __init__(self, stack):
        self.connection = http.client.HTTPConnection("127.0.0.1", stack.port, timeout=60)
        self.headers = {"Authorization": "Bearer " + stack.settings["WB_ADMIN_TOKEN"]}

    def ms(self, path, times=30):
        took = []
        for _ in range(times):
            begun = time.perf_counter()
            self.connection.request("GET", path, headers=self.headers)
            answer = self.connection.getresponse()
            answer.read()
            took.append((time.perf_counter() - begun) * 1e3)
            if answer.status != 200:
                raise SystemExit(f"{path}: {answer.status}")
        return statistics.median(took)


class JobRows:
    """Rows of run.py's Bench: rate() and note() are its."""

    def jobs(self):
        sys.path.insert(0, str(ROOT / "tests" / "e2e"))
        from planning import Double
        double = Double("batch_service")
        try:
            double.order(auto=False)
            with JobStack(durable=True) as s:
                self.enqueue(s)
                s.sql("TRUNCATE job CASCADE")
                s.sql("TRUNCATE job_run, job_event, job_count, intent")
                with s.planner(double.url) as planner:
                    planner.leads()
                    self.latencies(s, double)
                    self.idle(s, planner)
        finally:
            double.close()

    def enqueue(self, s):
        script = s.var / "enqueue.sql"
        script.write_text(ENQUEUE.replace("\n", " ") + "\n")
        socket = re.search(r"host=([^&]*)", s.settings["WB_PGURL"])[1].replace("%2F", "/")
        ratios, loads, plain = [], [], []
        for n in range(self.options.rounds):
            say(f"enqueue, round {n + 1} of {self.options.rounds}")
            done = subprocess.run(["pgbench", "-n", "-M", "prepared", "-c", "16", "-T", str(self.options.seconds), "-f", script, "-h", socket,
                                   "-U", "weighbridge", "weighbridge"], capture_output=True, text=True, check=True)
            plain.append(float(re.search(r"^tps = ([0-9.]+)", done.stdout, re.M)[1]))
            loads.append(s.load("/api/v1/jobs", self.options.seconds, script="job.lua", role="SUBMITTER"))
            if loads[-1].errors:
                raise SystemExit(f"{loads[-1].errors} of {loads[-1].requests} jobs were refused")
            ratios.append(loads[-1].rate / plain[-1])
        self.rate("job enqueue, committed, 16 clients, vs pgbench of the same insert", ratios, 0.5, 0.8)
        parts = ", ".join(f"{g} {min(x.cpu_us(g) for x in loads):.0f}" for g in ("nginx", "jobs", "postgres"))
        self.note("  at", f"{max(x.rate for x in loads):,.0f}/s (pgbench {max(plain):,.0f}/s)  CPU us/request: {parts}")

    def latencies(self, s, double):
        created, cancelled = [], []
        for n in range(4 * self.options.rounds + 1):
            begun = time.perf_counter()
            job = json.loads(s.call("POST", "/api/v1/jobs", {"input_dataset": "file-1", "endpoint": "/v1/chat/completions"}, role="SUBMITTER")[1])["id"]
            batch = self.when(lambda j=job: self.batch_of(double, j))
            took = (time.perf_counter() - begun) * 1e3
            s.wait(lambda j=job: s.sql("SELECT 1 FROM job_run WHERE job_id = %s::uuid AND state = 4", (j.removeprefix("job_"),)), "a batch")
            again = time.perf_counter()
            s.call("POST", f"/api/v1/jobs/{job}/cancel", {}, role="ADMIN")
            self.when(lambda b=batch: self.status_of(double, b) != "scheduling")
            took_cancel = (time.perf_counter() - again) * 1e3
            double.order(batch={batch: {"status": "cancelled"}})
            s.wait(lambda j=job: s.sql("SELECT 1 FROM job WHERE id = %s::uuid AND final_state IS NOT NULL", (j.removeprefix("job_"),)), "an end", 60)
            if n > 0:  # the first one opens all connections
                created.append(took)
                cancelled.append(took_cancel)
        self.rate("enqueue to batch created, idle, local provisioner", created, 1000, 50, " ms", higher=False, digits=0)
        self.rate("cancel to its effect outside", cancelled, 1000, 100, " ms", higher=False, digits=0)

    @staticmethod
    def when(probe):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            value = probe()
            if value:
                return value
            time.sleep(0.002)
        raise SystemExit("what was to be timed never came")

    @staticmethod
    def ask(double, path):
        host = double.url.removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=30)
        connection.request("GET", path)
        try:
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def batch_of(self, double, job):
        mine = [b for b in self.ask(double, "/v1/batches?limit=100")["data"]
                if (b.get("aibrix") or {}).get("job_id") == job.removeprefix("job_")]
        return mine[0]["id"] if mine else None

    def status_of(self, double, batch):
        return self.ask(double, f"/v1/batches/{batch}")["status"]

    def idle(self, s, planner):
        """Statements by Postgres' own log."""
        s.sql("ALTER SYSTEM SET log_line_prefix = '%a|'", superuser=True)
        s.sql("ALTER SYSTEM SET log_statement = 'all'", superuser=True)
        s.sql("SELECT pg_reload_conf()", superuser=True)
        time.sleep(3)
        log = s.var / "log" / "postgres.log"
        start, cpu = log.stat().st_size, s.cpu_of([planner.pid])
        seconds = 20 if not self.options.full else 120
        time.sleep(seconds)
        cpu = s.cpu_of([planner.pid]) - cpu
        lines = log.read_bytes()[start:].decode(errors="replace").splitlines()
        asked = [x for x in lines if re.match(r"weighbridge-planner[^|]*\|LOG: +(statement|execute)", x)]
        self.rate("idle planner: queries per second", [len(asked) / seconds], 3, 1.5, "/s", higher=False)
        self.rate("idle planner: CPU", [cpu / seconds * 100], 0.5, 0.1, " %", higher=False)

    # --- many that run ---

    def jobs_churn(self):
        with JobStack() as s:
            (s.var / "nginx" / "extra" / "batches.conf").write_text(BATCHES)
            s.dev("reload", "nginx")
            s.wait(lambda: s.get("/bench/v1/batches/x")[0] == 200, "nginx' batches")
            s.fill(queued=20000, state=6)
            self.claims(s)
            s.sql("DELETE FROM job_run WHERE job_id NOT IN (SELECT job_id FROM job_run LIMIT 1000)", superuser=True)
            s.sql("VACUUM FULL job_run", superuser=True)
            self.churn(s)

    def claims(self, s):
        rates = []
        for _ in range(self.options.rounds):
            s.sql("UPDATE job_run SET lease_owner = NULL, lease_until = NULL, next_poll_at = now()")
            s.sql("VACUUM ANALYZE job_run", superuser=True)
            with s.planner(s.url + "/bench/v1", WB_PLANNER_POLL_S="600") as planner:
                planner.joined()
                begun, before = time.perf_counter(), s.one("SELECT sum(lease_epoch)::bigint FROM job_run")
                time.sleep(self.options.seconds)
                claimed = s.one("SELECT sum(lease_epoch)::bigint FROM job_run") - before
                rates.append(claimed / (time.perf_counter() - begun))
        self.rate("I/O claims per second of one planner, each polled", rates, 2000, 10000, "/s", digits=0)

    def churn(self, s):
        seconds = 600 if self.options.full else 60

        def counters():
            # what backends have counted comes a second late
            return s.sql("SELECT n_tup_upd, n_tup_hot_upd, pg_relation_size(relid), pg_indexes_size(relid) FROM pg_stat_user_tables"
                         " WHERE relname = 'job_run'")[0]
        s.sql("UPDATE job_run SET lease_owner = NULL, lease_until = NULL, next_poll_at = now()")
        with s.planner(s.url + "/bench/v1", WB_PLANNER_POLL_S="1", WB_PLANNER_CLAIM_MS="1500") as planner:
            planner.joined()
            time.sleep(max(30, seconds / 5))  # until its pages have their lasting shape
            before = counters()
            time.sleep(seconds)
            after = counters()
        self.rate("hot share of polls and lease renewals", [(after[1] - before[1]) / max(1, after[0] - before[0]) * 100], 95, 100, " %", digits=1)
        growth = (after[2] + after[3]) / (before[2] + before[3])
        self.rate(f"  table growth over {seconds} s", [growth], 1.02, 1.0, "x", higher=False)
        self.note("  at", f"{(after[0] - before[0]) / seconds:,.0f} updates/s of 1,000 rows; {after[2] >> 10:,} KB and {after[3] >> 10:,} KB of indexes")

    # --- a million ---

    def jobs_scale(self):
        with JobStack() as big, JobStack() as small:
            begun = time.monotonic()
            big.fill(ended=1000000, queued=100000)
            small.fill(ended=1000)
            self.note("filling 1,000,000 ended and 100,000 queued", f"{time.monotonic() - begun:.0f} s")
            self.pages(big, small)
            self.plans(big)

    def pages(self, big, small):
        deep = {s: [s.one("SELECT id FROM job WHERE name = %s", (name,)) for name in names]
                for s, names in ((big, ("job 990000", "job 500000", "job 5000")), (small, ("job 900", "job 500", "job 50")))}
        paths = {"first": "/api/v1/jobs?limit=20"} | {f"after {n}": "/api/v1/jobs?limit=20&after=job_{}" for n in ("1 %", "half", "99.5 %")}
        found = {name: [] for name in paths}
        plain = {name: [] for name in paths}
        readers = {big: Pages(big), small: Pages(small)}
        for _ in range(self.options.rounds):
            for n, (name, path) in enumerate(paths.items()):
                ms = {s: readers[s].ms(path.format(deep[s][n - 1])) for s in (small, big)}
                found[name].append(ms[big] / ms[small])
                plain[name].append(ms[big])
        worst = max(found, key=lambda k: min(found[k]))
        self.rate(f"list page at 1,000,000 jobs vs at 1,000 (the worst of all depths: {worst})", found[worst], 3, 1.2, "x", higher=False)
        self.note("  ms", ", ".join(f"{k} {min(v):.2f}" for k, v in plain.items()))
        filters = {"mine": "created_by=user7", "completed": "status=completed", "failed": "status=failed", "queued": "status=queued",
                   "running": "status=in_progress"}
        took = {k: readers[big].ms(f"/api/v1/jobs?limit=20&{q}", 10) for k, q in filters.items()}
        self.note("  ms by filter", ", ".join(f"{k} {v:.2f}" for k, v in took.items()))

    def plans(self, s):
        first, cycles = [], []
        for _ in range(self.options.rounds):
            before = s.one("SELECT count(*) FROM job_run WHERE state > 0")
            begun = time.perf_counter()
            with s.planner(s.url + "/nothing/v1", provisioning=50, slots=before + 50):
                self.when(lambda n=before: s.one("SELECT count(*) FROM job_run WHERE state > 0") > n)
                first.append((time.perf_counter() - begun) * 1e3)
                cycles.append(self.when(lambda: s.one("SELECT max(plan_us) FROM planner_lease WHERE planned > 0")) / 1e3)
        self.rate("plan with 100,000 queued, per cycle", cycles, 1000, 50, " ms", higher=False, digits=1)
        self.rate("start-up to the first plan, 1,000,000 ended", first, 1000, 200, " ms", higher=False, digits=0)
