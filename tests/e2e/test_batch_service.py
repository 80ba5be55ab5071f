# SPDX-License-Identifier: Apache-2.0
"""The embedded batch service: files and batches through the web server, lines on an inference server. Batch contract."""
import re

from batching import _batches, line, service  # noqa: F401  fixtures
from guide import metrics_of, page
from program import ask


def test_a_file_becomes_a_batch_whose_lines_run_and_whose_output_can_be_fetched(service):
    with service.runner():
        batch = service.batch([line(i) for i in range(20)], metadata={"run": "7"})
        done = service.until(batch, "completed")
        assert done["request_counts"] == {"total": 20, "completed": 20, "failed": 0}
        assert (done["error_file_id"], done["errors"], done["metadata"]) == (None, None, {"run": "7"})
        assert service.outputs(batch) == {f"id-{i}": f"line {i}" for i in range(20)}
        first = service.results(done["output_file_id"])[0]
        assert set(first) == {"id", "custom_id", "response", "error"} and first["error"] is None
        assert first["response"]["status_code"] == 200 and first["id"].startswith("batch_req_")


def test_the_manual_names_every_metric_of_the_runner_by_what_it_means(service):
    with service.runner() as runner:
        status, text = ask(runner.folder / "planner.sock", "/metrics", token=runner.token)
    told = dict(re.findall(r"^# HELP (\w+) (.*)$", text, re.M))
    assert status == 200 and told == {**metrics_of(page("operations.md"), "Of every program"), **metrics_of(page("batch.md"), "Of weighbridge-batch")}


def test_health_of_both_programs_is_told_through_the_web_server(service):
    for what in ("healthz", "readyz", "metrics"):
        assert service.stack.get("/batches/" + what, token="admin").status_code == 200
        assert service.stack.get("/batch/" + what, token="admin").status_code == 503  # no service of it runs here
