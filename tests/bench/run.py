#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""./dev bench: what polls and batch jobs reach, as ratios measured side by side. Cells that are compared with each
other are interleaved; the best of the rounds counts, since machines are shared; the range tells how steady it was."""
import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from agent_rows import AgentRows  # noqa: E402
from batch_rows import BatchRows  # noqa: E402
from jobs import JobRows  # noqa: E402
from stack import KeptConnections, Stack, say  # noqa: E402


@dataclass
class Row:
    what: str
    measured: str
    gate: str = ""
    aim: str = ""
    verdict: str = ""


class Bench(JobRows, AgentRows, BatchRows):
    def __init__(self, options):
        self.stack = None  # of the rows of operations
        self.options = options
        self.rows = []

    def run(self, names):
        for name in names:
            say(f"== {name}")
            getattr(self, name.replace("-", "_"))()

    def rate(self, what, values, gate, aim, unit="", higher=True, digits=2):
        """A row whose best value is held against gate and aim."""
        best = max(values) if higher else min(values)

        def number(x):
            return f"{x:.{digits}f}"
        measured = number(best) + unit
        if len(values) > 1:
            measured += f"  median {number(statistics.median(values))} ({number(min(values))} .. {number(max(values))})"

        def reaches(bar):
            return best >= bar if higher else best <= bar
        verdict = "aim" if reaches(aim) else "gate" if reaches(gate) else "MISSED"
        sign = ">=" if higher else "<="
        self.rows.append(Row(what, measured, f"{sign} {gate:g}{unit}", f"{sign} {aim:g}{unit}", verdict))
        say(f"  {what}: {measured}: {verdict}")

    def note(self, what, measured):
        self.rows.append(Row(what, measured))
        say(f"  {what}: {measured}")

    def quiet(self):
        """A neighbour's load shows in every figure below: tell of it."""
        def times():
            fields = [int(x) for x in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
            return fields[3] + fields[4], sum(fields)
        idle, total = times()
        time.sleep(2)
        idle2, total2 = times()
        share = (idle2 - idle) / (total2 - total) * 100
        self.note("idle before anything was measured", f"{share:.0f} % of the CPUs" + ("" if share >= 85 else
                  ": BUSY, figures below 85 % are worth little"))

    # --- rows ---

    def same_answers(self):
        """A server that answers something else is no comparison."""
        ours = json.loads(self.stack.get("/api/operations")[1])
        for mode in self.stack.node:
            theirs = json.loads(self.stack.get(f"/bench/{mode}/api/operations")[1])
            if ours == theirs:
                continue
            pairs = zip(ours["operations"], theirs["operations"])
            first = next(((a, b) for a, b in pairs if a != b), (len(ours["operations"]), len(theirs["operations"])))
            raise SystemExit(f"the Node server ({mode}) answers something else; nothing is measured.\nours   {first[0]}\ntheirs {first[1]}")

    def polls(self):
        s = self.stack
        s.fill(60)
        time.sleep(0.5)
        self.same_answers()
        status, body, headers = s.get("/api/operations")
        assert status == 200
        (s.var / "body.json").write_bytes(body)
        cells = {
            "a": {"path": "/bench/return"},
            "s": {"path": "/bench/static"},
            "poll": {"path": "/api/operations"},
            "304": {"path": "/api/operations", "headers": ["If-None-Match: " + headers["ETag"]]},
        }
        if s.get("/api/operations", headers={"If-None-Match": headers["ETag"]})[0] != 304:
            raise SystemExit("the answer does not stand still; nothing is measured")
        for mode in s.node:
            cells[mode] = {"path": f"/bench/{mode}/api/operations"}
        found = {name: [] for name in cells}
        for n in range(self.options.rounds):
            say(f"polls, round {n + 1} of {self.options.rounds}")
            for name, cell in cells.items():
                found[name].append(s.load(seconds=self.options.seconds, **cell))
        wrong = {name: sum(x.errors for x in loads) for name, loads in found.items()}
        if any(wrong.values()):
            raise SystemExit(f"answers that are no 200 or 304: {wrong}")

        def ratios(name, base):
            return [x.rate / y.rate for x, y in zip(found[name], found[base])]
        self.rate("poll, 60 operations, 16 clients, vs (a)", ratios("poll", "a"), 0.30, 0.40)
        self.rate("poll vs (s)", ratios("poll", "s"), 0.75, 1.0)
        if s.node:
            self.rate("poll vs (N) naive", ratios("poll", "naive"), 15, 25, "x", digits=1)
            self.rate("poll vs (N) cached", ratios("poll", "cached"), 2, 3, "x", digits=1)
        self.rate("handler CPU per poll", [x.cpu_us("operations") for x in found["poll"]], 20, 12, " us", higher=False, digits=1)
        self.rate("304 poll vs (a)", ratios("304", "a"), 0.28, 0.45)
        for name, loads in found.items():
            best = max(loads, key=lambda x: x.rate)
            parts = {g: min(x.cpu_us(g) for x in loads) for g in ("nginx", "operations", "postgres", "redis", *s.node)}
            split = ", ".join(f"{g} {us:.1f}" for g, us in parts.items() if us >= 0.05)
            self.note(f"  {name}", f"{best.rate:,.0f}/s  p50 {best.p50_ms:.2f} p99 {best.p99_ms:.2f} ms  CPU us/request: {split}")

    def outages(self):
        s = self.stack
        s.fill(60)
        kinds = {"Postgres": ["postgres"], "Redis": ["redis"], "both": ["postgres", "redis"]}
        ratios = {kind: [] for kind in kinds}
        p99 = {kind: [] for kind in ("healthy", *kinds)}
        errors = 0
        for n in range(self.options.rounds):
            say(f"outages, round {n + 1} of {self.options.rounds}")
            for kind, services in kinds.items():
                healthy = s.load("/api/operations", 2)
                s.dev("freeze", *services)
                try:
                    # The poll that finds it out may take longer. With both away the last answer holds for 5 s.
                    until = time.monotonic() + 3
                    while not s.get("/api/operations")[2]["X-Degraded"] and time.monotonic() < until:
                        time.sleep(0.02)
                    hung = s.load("/api/operations", 2)
                finally:
                    s.dev("thaw", *services)
                s.wait(lambda: s.get("/api/operations")[2]["X-Degraded"] is None, "recovery")
                errors += healthy.errors + hung.errors
                p99["healthy"].append(healthy.p99_ms)
                p99[kind].append(hung.p99_ms)
                ratios[kind].append(hung.p99_ms / healthy.p99_ms)
        for kind in kinds:
            self.rate(f"poll p99 while {kind} hangs, vs healthy" if kind != "both" else "poll p99 while both hang, vs healthy",
                      ratios[kind], 3, 1.5, "x", higher=False)
        self.note("  p99 in ms, medians", ", ".join(f"{k} {statistics.median(v):.2f}" for k, v in p99.items()))
        self.rate("  polls refused in outages", [errors], 0, 0, higher=False, digits=0)

    def tabs(self):
        s = self.stack
        s.fill(500)
        load = s.load("/api/operations", self.options.tab_seconds, connections=1000, script="tabs.lua")
        self.rate("1,000 tabs at 1 poll/s, 500 operations: handlers, of one core",
                  [load.cpu["operations"] / load.seconds * 100], 15, 5, " %", higher=False, digits=1)
        split = ", ".join(f"{g} {used / load.seconds * 100:.1f} %" for g, used in load.cpu.items() if g not in s.node)
        self.note("  at", f"{load.rate:,.0f} polls/s, {load.errors} errors, p99 {load.p99_ms:.1f} ms; {split}")

    def reloads(self):
        s = self.stack
        s.fill(60)
        for n in range(50):
            s.call("PUT", f"/api/v1/staging/bench-{n}", {"session": "bench", "node_name": "n1", "file_index": 1, "total_files": 4}, role="WORKER")
        wanted = 100000 if self.options.full else 15000
        speed = s.load("/api/v1/staging", 1, connections=8, script="post.lua", role="WORKER")
        if speed.errors:
            raise SystemExit(f"{speed.errors} of {speed.requests} POSTs failed without any reload")
        posts = lost = reloads = 0
        kinds = [0, 0, 0, 0]
        before = s.statuses()
        while posts < wanted:
            seconds = max(6, min(60, int((wanted - posts) / speed.rate) + 1))
            timers = [threading.Timer(seconds * (i + 1) / 4, s.dev, ("reload", "operations")) for i in range(3)]
            for t in timers:
                t.start()
            load = s.load("/api/v1/staging", seconds, connections=8, script="post.lua", role="WORKER")
            for t in timers:
                t.join()
            posts += load.requests
            lost += load.errors
            kinds = [x + y for x, y in zip(kinds, load.kinds)]
            reloads += 3
        if s.metric('weighbridge_reloads_total{result="ok"}') < reloads:
            raise SystemExit("not every reload took place")
        self.rate(f"POSTs lost over {reloads} reloads, of {posts:,}", [lost], 0, 0, higher=False, digits=0)
        if lost:
            after = s.statuses()
            self.note("  lost by connecting, reading or writing, timeout, status", ", ".join(map(str, kinds)))
            self.note("  answers by status", ", ".join(f"{k}: {n - before.get(k, 0):,}" for k, n in sorted(after.items())))
            errors = (s.var / "nginx" / "error.log").read_text(encoding="utf8", errors="replace").splitlines()
            for line in errors[-3:]:
                self.note("  nginx", line[:200])
            for line in [x for x in (s.var / "log" / "operations.log").read_text(encoding="utf8").splitlines() if "level=error" in x][-3:]:
                self.note("  operations", line[:200])

    def memory(self):
        s = self.stack
        s.fill(60)
        s.load("/api/operations", 1)
        connections = KeptConnections(str(s.var / "run" / "operations.sock"), 2000)
        try:
            s.load("/api/operations", 1)
            held = connections.open_count()
            sizes = [self.memory_of(pid) for pid in s.pids("operations")[1:]]
        finally:
            connections.close()
        if held < 2000:
            self.note("  kept connections that were closed", str(2000 - held))
        self.rate("memory of a handler process, 2,000 kept connections: RSS", [max(rss for rss, _ in sizes)], 12, 8, " MB", higher=False, digits=1)
        self.note("  of it not shared with others (PSS)", f"{max(pss for _, pss in sizes):.1f} MB")

    @staticmethod
    def memory_of(pid):
        fields = {}
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
            name, kb = line.split()[:2]
            fields[name.rstrip(":")] = int(kb)
        return fields["Rss"] * 1024 / 1e6, fields["Pss"] * 1024 / 1e6

    def writes(self):
        s = self.stack
        s.fill(60)
        ratios, loads, sets = [], [], []
        for n in range(self.options.rounds):
            say(f"writes, round {n + 1} of {self.options.rounds}")
            done = subprocess.run(["redis-benchmark", "-s", s.redis_socket, "-t", "set", "-c", "16", "-n", "100000", "-d", "300", "-r", "1000",
                                   "--csv"], capture_output=True, text=True, check=True)
            sets.append(float(done.stdout.splitlines()[-1].split(",")[1].strip('"')))
            loads.append(s.load("/api/v1/staging", self.options.seconds, script="put.lua", role="WORKER"))
            if loads[-1].errors:
                raise SystemExit(f"{loads[-1].errors} of {loads[-1].requests} staging reports failed")
            ratios.append(loads[-1].rate / sets[-1])
        self.rate("staging overlay writes vs redis-benchmark SET", ratios, 0.10, 0.18)
        parts = ", ".join(f"{g} {min(x.cpu_us(g) for x in loads):.0f}" for g in ("nginx", "operations", "postgres", "redis"))
        self.note("  at", f"{max(x.rate for x in loads):,.0f}/s (SET {max(sets):,.0f}/s)  CPU us/request: {parts}")

    def refresh(self):
        s = self.stack
        for n in (50, 5000):
            s.fill(n)
            values, splits = [], []
            for _ in range(self.options.rounds):
                count, used, cpu = self.watch_refresh(3)
                values.append(used / count / n * 1e6)
                splits.append({g: cpu[g] / count / n * 1e6 for g in ("operations", "postgres", "redis")})
            self.rate(f"refresh of {n:,} operations: handler CPU per operation", values, 10, 5, " us", higher=False, digits=1)
            best = {g: min(x[g] for x in splits) for g in splits[0]}
            self.note("  by /proc, a few polls included", ", ".join(f"{g} {us:.1f} us" for g, us in best.items()))

    def watch_refresh(self, seconds):
        """Few polls, enough to keep it going; HEAD, so that their bodies cost nothing."""
        s = self.stack

        def counters():
            return s.metric("weighbridge_snapshots_total"), s.metric("weighbridge_snapshot_seconds_total"), s.cpu()
        s.call("HEAD", "/api/operations")
        time.sleep(0.5)
        count, used, cpu = counters()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            s.call("HEAD", "/api/operations")
            time.sleep(0.2)
        count2, used2, cpu2 = counters()
        if count2 - count < seconds:
            raise SystemExit("the snapshot was not renewed while it was polled")
        return count2 - count, used2 - used, {g: cpu2[g] - cpu[g] for g in cpu}

    # --- the table ---

    def table(self):
        heads = Row("what", "measured (best, median, range)", "gate", "aim", "verdict")
        lines = [(r.what, r.measured, r.gate, r.aim, r.verdict) for r in (heads, *self.rows)]
        widths = [max(len(x[i]) for x in lines if i != 1 or x[2]) for i in range(4)]
        for n, line in enumerate(lines):
            print("  ".join(cell.ljust(w) for cell, w in zip(line, widths)) + "  " + line[4])
            if n == 0:
                print("-" * (sum(widths) + 16))


OPERATIONS_ROWS = ("polls", "outages", "tabs", "reloads", "memory", "writes", "refresh")
JOB_ROWS = ("jobs", "jobs-churn", "jobs-scale", "agent", "batch")  # each starts what it measures
ROWS = OPERATIONS_ROWS + JOB_ROWS


def options_of(argv):
    p = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    p.add_argument("--gate", action="store_true", help="exit with 1 when a gate is missed")
    p.add_argument("--full", action="store_true", help="100,000 POSTs over the reloads, 10 minutes of churn")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=int, default=2, help="of a cell")
    p.add_argument("--tab-seconds", type=int, default=10)
    p.add_argument("--only", nargs="+", choices=ROWS, default=ROWS, metavar="ROW", help=", ".join(ROWS))
    p.add_argument("--no-node", action="store_true", help="leave the comparison with Node out")
    return p.parse_args(argv)


def main(argv):
    options = options_of(argv)
    bench = Bench(options)
    bench.quiet()
    operations = [name for name in options.only if name in OPERATIONS_ROWS]
    if operations:
        with Stack(with_node="polls" in operations and not options.no_node) as bench.stack:
            bench.run(operations)
    bench.run([name for name in options.only if name in JOB_ROWS])
    bench.table()
    missed = [r.what.strip() for r in bench.rows if r.verdict == "MISSED"]
    if missed:
        print(f"\n{len(missed)} missed: " + "; ".join(missed))
    return 1 if missed and options.gate else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
