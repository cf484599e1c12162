from motet.doctor.versions import (
    Unmet,
    installed_versions,
    required_names,
    unmet_requirements,
)


def test_a_version_out_of_range_and_a_missing_package_are_found():
    requirements = {"vllm": ["transformers<5.20,>=4.56", "ray>=2", "numpy"]}
    versions = {"transformers": "5.23.0", "numpy": "2.4.6"}
    assert list(unmet_requirements(requirements, versions)) == [
        Unmet("vllm", "transformers<5.20,>=4.56", "5.23.0"),
        Unmet("vllm", "ray>=2", None),
    ]


def test_extras_and_other_systems_do_not_count():
    requirements = {"motet": ["wandb>=0.19; extra == 'wandb'", "tool; sys_platform == 'nowhere'"]}
    assert list(unmet_requirements(requirements, {})) == []


def test_names_are_compared_without_case_dash_and_underscore():
    requirements = {"datasets": ["Huggingface_Hub>=1.0"]}
    assert list(unmet_requirements(requirements, {"huggingface-hub": "1.2"})) == []


def test_local_builds_and_release_candidates_meet_their_range():
    requirements = {"motet": ["torch>=2.6,<3"]}
    for version in ("2.13.0+cpu", "2.14.0rc1"):
        assert list(unmet_requirements(requirements, {"torch": version})) == []


def test_a_requirement_that_cannot_be_read_is_left_out():
    assert list(unmet_requirements({"odd": ["not a requirement !"]}, {})) == []
    assert required_names({"odd": ["not a requirement !", "torch>=2"]}) == ["torch"]


def test_versions_come_from_the_installed_metadata():
    assert installed_versions(["pytest", "surely-not-installed"]).keys() == {"pytest"}
