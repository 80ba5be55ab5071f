# SPDX-License-Identifier: Apache-2.0
"""The embedded batch service: files and batches through the web server, lines on an inference server. Batch contract."""
import json

import pytest

from batching import _batches, jsonl, line, service  # noqa: F401  fixtures


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
