# SPDX-License-Identifier: Apache-2.0
"""Jobs on real clusters and clouds, through a whole planner: jobs contract, section 5, "Provisioners"."""
import pytest

from conftest import wait_until
from planning import Yard

REQUEST = """{"model_template": {"name": "t", "version": "v1", "spec": {"accelerator": {"type": "A100", "count": 2},
  "engine": {"type": "vllm", "image": "vllm:1", "serve_args": ["--tensor-parallel-size", "2"]}}}}"""


@pytest.fixture
def yard(stack):
    y = Yard(stack)
    y.empty()
    yield y
    y.close()


def gone(provider):
    wait_until(lambda: provider.state()["alive"] == 0, "nothing left outside")


def test_a_job_runs_in_a_cluster_as_its_template_says(yard, tmp_path):
    cluster = yard.kubernetes(tmp_path)
    cluster.order(stuck=True)
    (job,) = yard.enqueue(1, pool="cluster", replicas=2, gpus=2, gpu_type="A100", request=REQUEST[:-1] + ', "replicas": 2}')
    with yard.planner():
        yard.reaches(job, "resource_preparing")
        (tmp_path / "token").write_text("bound-token-2\n")  # as a bound token is replaced
        cluster.order(tokens=["bound-token-2"], stuck=False)
        yard.reaches(job, "completed")
        gone(cluster)
        yard.nothing_left()
    (made,) = cluster.calls("POST", "/apis/apps/v1/namespaces/default/deployments")
    container = made["body"]["spec"]["template"]["spec"]["containers"][0]
    assert made["body"]["spec"]["replicas"] == 2
    assert (container["image"], container["args"]) == ("vllm:1", ["--model", "m", "--tensor-parallel-size", "2"])
    (batch,) = yard.batches_of(job)
    name = made["body"]["metadata"]["name"]
    assert batch["aibrix"]["runtime"]["target"] == "Kubernetes"
    assert batch["aibrix"]["runtime"]["options"]["http_base_url"] == f"http://{name}.default.svc:8000"


def test_pods_that_get_no_node_send_their_job_back_to_the_queue(yard, tmp_path):
    """Not only at the pool's time-out, and as often as need be: a full cluster is no fault of the job."""
    cluster = yard.kubernetes(tmp_path)
    cluster.order(pod={"node": "n1", "gpus": 8})
    (job,) = yard.enqueue(1, pool="cluster", gpus=2, gpu_type="A100", request=REQUEST)
    with yard.planner():
        for attempt in range(1, 5):
            yard.reaches(job, "resource_preparing")
            cluster.order(advance=1000)
            # Once it is back it waits for its time, and shows why.
            wait_until(lambda n=attempt: yard.hurry(queued=False) or yard.history(job).count("queued") > n, "back in the queue")
            assert yard.errors(job)[0] == "NoCapacity"
        cluster.order(nodes={"n3": {"gpu": "NVIDIA-A100-SXM4-80GB", "gpus": 2}})
        yard.reaches(job, "completed")
        gone(cluster)


def test_an_engine_that_cannot_start_ends_its_job_and_says_why(yard, tmp_path):
    cluster = yard.kubernetes(tmp_path)
    cluster.order(images={"vllm:1": "ImagePullBackOff"})
    (job,) = yard.enqueue(1, pool="cluster", gpus=2, gpu_type="A100", request=REQUEST)
    with yard.planner():
        yard.reaches(job, "resource_failed")
        assert yard.errors(job) == ("Refused", "ImagePullBackOff: Back-off: ImagePullBackOff")
        gone(cluster)


def test_capacity_goes_by_what_the_nodes_have_left(yard, tmp_path):
    cluster = yard.kubernetes(tmp_path, policy="capacity", catalog_s=1)
    cluster.order(nodes={"n1": {"gpu": "NVIDIA-A100-SXM4-80GB", "gpus": 3}, "n2": {"gpu": "NVIDIA-A100-SXM4-80GB", "gpus": 3}})
    (large,) = yard.enqueue(1, pool="cluster", gpus=2, gpu_type="A100", replicas=3, request=REQUEST)
    (fits,) = yard.enqueue(1, pool="cluster", gpus=2, gpu_type="A100", replicas=2, request=REQUEST)
    with yard.planner():
        yard.reaches(fits, "completed")
        assert (yard.state(large), yard.errors(large)[0]) == ("queued", "waits")


T4 = '{"model_template": {"name": "t", "version": "v1", "spec": {"accelerator": {"type": "T4", "count": 1}}}, "replicas": 2}'


def test_a_job_runs_on_instances_of_ec2(yard, tmp_path):
    """Lost answers and full subnets on the way; a planner that dies after each launch doubles nothing."""
    cloud = yard.aws(tmp_path)
    cloud.order(capacity={"g4dn.xlarge": {"subnet-a": 1}}, delay_visible=3)
    cloud.fault("POST /RunInstances", "drop_after")
    (job,) = yard.enqueue(1, pool="ec2", replicas=2, gpus=1, gpu_type="T4", request=T4)
    with yard.planner(WB_FAULTS_SET="provision.called=kill") as dying:
        yard.reaches(job, "planned")
        dying.died()
    with yard.planner():
        yard.reaches(job, "completed")
        gone(cloud)
        yard.nothing_left()
    state = cloud.state()
    assert state["launched"] == 2
    assert sorted(i["subnet"] for i in state["instances"].values()) == ["subnet-a", "subnet-b"]
    (batch,) = yard.batches_of(job)
    runtime = batch["aibrix"]["runtime"]
    assert (runtime["target"], runtime["options"]["ssh_user"]) == ("External", "ubuntu")


def test_an_instance_that_ends_for_want_of_capacity_sends_its_job_back(yard, tmp_path):
    cloud = yard.aws(tmp_path)
    cloud.order(stuck=True)
    (job,) = yard.enqueue(1, pool="ec2", gpus=1, gpu_type="T4", request=T4.replace("2}", "1}"))
    with yard.planner():
        yard.reaches(job, "resource_preparing")
        (instance,) = cloud.state()["instances"]
        cloud.order(state={instance: "terminated"}, reason={instance: "Server.InsufficientInstanceCapacity"}, stuck=False)
        yard.reaches(job, "completed")
        assert yard.history(job).count("queued") == 2
        gone(cloud)
