"""How a declared workload is named and counted; when a warm cache's record fits it."""

import pytest

from helpers.recover import baseline, warm_record, workload
from tests.unit import captured


def target(*devices):
    roles = [{"name": "drafter", "devices": list(devices), "shapes": [{"batch": 2}]}]
    return captured.target(workload={"roles": roles})


SMI = [f"GPU {i}: NVIDIA RTX PRO 6000 (UUID: GPU-{i})" for i in range(3)]


@pytest.mark.parametrize(
    ("devices", "machine", "text"),
    [
        (("cpu", "cpu"), {"cpu_model": "AMD EPYC", "cores": 2}, "AMD EPYC, 2 cores"),
        (("cpu",), {"cpu_model": None, "architecture": "aarch64", "cores": 4}, "aarch64, 4 cores"),
        (("cuda:0", "cuda:2"), {"nvidia": {"gpus": SMI}, "cores": 8}, "2 x NVIDIA RTX PRO 6000"),
        (("cuda",), {"nvidia": {"gpus": SMI}, "cores": 8}, "1 x NVIDIA RTX PRO 6000"),
        (("cuda:7",), {"nvidia": {"gpus": SMI}, "cores": 8}, None),
        (("cuda:0",), {"nvidia": None}, None),
        (("cpu",), {"cpu_model": "AMD EPYC"}, None),
    ],
)
def test_devices_are_named_as_a_baseline_names_them(devices, machine, text):
    declared = target(*devices)
    names = workload.device_names(declared, machine)
    assert workload.device_text(names, machine.get("cores")) == text


def test_the_measurement_names_its_device_like_the_look_before_it():
    measured = captured.document("benchmark")["measured"]
    machine = {"cpu_model": measured["cpu_model"], "cores": measured["load"]["cores"]}
    declared = captured.target()
    looked = workload.device_text(workload.device_names(declared, machine), machine["cores"])
    assert baseline.measured_device(measured) == looked


def test_a_key_is_a_file_name_that_differs_with_each_of_its_parts():
    parts = ("8 x NVIDIA RTX PRO 6000", "2.11.0+cu128", "a" * 64, "b" * 64)
    key = baseline.key(*parts)
    assert key == "8-x-nvidia-rtx-pro-6000-torch-2-11-0-cu128-aaaaaaaaaaaa-bbbbbbbbbbbb"
    for place in range(4):
        other = [*parts]
        other[place] = "c" * 64
        assert baseline.key(*other) != key


def test_roles_and_threads_decide_the_roles_hash_and_the_file_does_not():
    one = captured.target()
    assert workload.roles_hash(
        captured.target(workload={"file": "/elsewhere.py"})
    ) == workload.roles_hash(one)
    assert workload.roles_hash(
        captured.target(workload={"expected_graph_breaks": 3})
    ) == workload.roles_hash(one), "what is expected is no part of what is run"
    assert workload.roles_hash(
        captured.target(workload={"torch_threads": 2})
    ) != workload.roles_hash(one)
    assert workload.roles_hash(target("cpu")) != workload.roles_hash(one)


@pytest.mark.parametrize(
    ("had", "waited", "free"),
    [
        (2.0, 1.0, 100.0),  # three threads on two cores of their own: nobody took anything
        (0.5, 2.5, 400.0),  # a quarter of what they would have had
        (0.5, 0.5, 200.0),  # threads that are ready for one core get one, however many there are
        (1.0, 0.0, 100.0),  # they waited for a lock or a device, not for a core
        (0.0, 0.0, 100.0),
    ],
)
def test_samples_are_corrected_for_cores_that_others_took(had, waited, free):
    one = {"t_s": 0.0, "tok_per_s": 100.0, "own_cores": had, "own_wait_cores": waited}
    series, corrected = workload.free_core_series({"series": [one], "load": {"cores": 2}})
    assert corrected
    assert series == [one | {"tok_per_s": free, "as_measured_tok_per_s": 100.0}]


@pytest.mark.parametrize("load", [{"cores": 2}, {}, None])
def test_samples_stay_as_measured_where_the_kernel_did_not_tell(load):
    one = {"t_s": 0.0, "tok_per_s": 100.0, "own_cores": 0.5, "own_wait_cores": None}
    series, corrected = workload.free_core_series({"series": [one], "load": load})
    assert not corrected
    assert series[0]["tok_per_s"] == 100.0
    assert workload.free_core_series({"series": None}) == ([], False)


KEY = {
    "torch": "2.13.0",
    "python": "3.11.7",
    "files": {"a.py": "1"},
    "roles": "r",
    "devices": {"cpu": "x"},
}
RECORD = {"key": KEY, "files": 38, "bytes": 900}
SIZE = {"files": 38, "bytes": 900}


def misfits(record=RECORD, key=KEY, size=SIZE):
    return list(warm_record.misfits(record, key, size))


def test_a_record_fits_what_it_was_made_for_and_what_training_added():
    assert misfits() == []
    assert misfits(size={"files": 40, "bytes": 1000}) == []


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"record": None}, "no record"),
        ({"key": KEY | {"torch": "2.11.0"}}, "torch is another build"),
        ({"key": KEY | {"python": "3.12.1"}}, "Python is another version"),
        ({"key": KEY | {"files": {"a.py": "2"}}}, "training scripts"),
        ({"key": KEY | {"roles": "s"}}, "roles, devices, shapes"),
        ({"key": KEY | {"devices": {"cpu": "y"}}}, "devices are others"),
        ({"key": KEY | {"files": {"a.py": None}}}, "not known"),
        ({"key": KEY | {"torch": None}}, "not known"),
        ({"size": {"files": 37, "bytes": 900}}, "37 files, 38 were recorded"),
        ({"size": {"files": 38, "bytes": 899}}, "899 bytes"),
        ({"size": {}}, "None files"),
    ],
)
def test_a_record_that_does_not_fit_says_why(changed, why):
    assert any(why in said for said in misfits(**changed))
