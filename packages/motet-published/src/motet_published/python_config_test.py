import pytest

from motet.errors import ConfigError
from motet_published.python_config import read_python_config
from tests.fixtures.messages import facts

PUBLISHED = '''
"""A config in the form of MAPoRL's."""
from datetime import datetime
from peft import LoraConfig, LoftQConfig

server_dict = {"some/phi": "http://there:8501/predict"}
dataset_name = "GSM8k"
if dataset_name == "ANLI":
    max_input_length = 350
elif dataset_name == "GSM8k":
    max_input_length = 200
base_model_dict = {"phi3": "some/phi", "qwen": "some/qwen"}
base_model_name = "phi3"
base_model = base_model_dict[base_model_name]
quantization = True
if quantization:
    peft_config = LoraConfig(r=8, loftq_config=LoftQConfig(loftq_bits=4), target_modules=['q', 'v'])
else:
    peft_config = LoraConfig(r=16)
policy_separation = True
collaboration_separation = True
if (not policy_separation) and (not quantization):
    print("error")
    exit()
if policy_separation:
    collaboration_separation = False
others = ["qwen"]
another_policy_base_model = [base_model_dict[name] for name in others]
total_episodes = None
learning_rate = 1e-5
penalty_reward_value = -10
batch = 1
reload = False
output_dir = f"ppo_{base_model_name}_lr_{learning_rate}_batch_{batch * 8}_sep_{policy_separation}"
reload_dir = output_dir if not reload else "elsewhere"
now = datetime.now()
current_time = now.strftime("%y%m%d%H%M")[2:]
run_name = f"ppo_{current_time}"
config = {
    "server_dict": server_dict,
    "max_input_length": max_input_length,
    "base_model": base_model,
    "peft_config": peft_config,
    "collaboration_separation": collaboration_separation,
    "another_policy_base_model": another_policy_base_model,
    "total_episodes": total_episodes,
    "penalty_reward_value": penalty_reward_value,
    "reload_dir": reload_dir,
    "run_name": run_name,
}
'''


def read(tmp_path, text):
    file = tmp_path / "config.py"
    file.write_text(text)
    return read_python_config(file)


def test_a_published_config_is_read(tmp_path):
    document = read(tmp_path, PUBLISHED)
    assert document.data == {
        "server_dict": {"some/phi": "http://there:8501/predict"},
        "max_input_length": 200,
        "base_model": "some/phi",
        "peft_config": {"r": 8, "loftq_config": {"loftq_bits": 4}, "target_modules": ["q", "v"]},
        "collaboration_separation": False,
        "another_policy_base_model": ["some/qwen"],
        "total_episodes": None,
        "penalty_reward_value": -10,
        "reload_dir": "ppo_phi3_lr_1e-05_batch_8_sep_True",
    }


def test_places_are_the_lines_that_assigned_a_value(tmp_path):
    places = read(tmp_path, PUBLISHED).places
    assert places["base_model",].endswith("config.py:14")
    assert places["collaboration_separation",].endswith("config.py:26")


def test_what_only_running_gives_is_left_out_with_a_message(tmp_path):
    (message,) = read(tmp_path, PUBLISHED).warnings
    assert "config.py:37: run_name is left out: now.strftime" in message


def test_nothing_is_executed(tmp_path):
    trap = tmp_path / "trap"
    text = f"import os\nx = open({str(trap)!r}, 'w')\nconfig = {{'seed': 1, 'x': x}}\n"
    assert read(tmp_path, text).data == {"seed": 1}
    assert not trap.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "config = {...}"),
        ("config = [1]\n", "config = {...}"),
        ("config = {1: 2}\n", "config.py:1 … 1 … text … key"),
        ("def f():\n    pass\n", "config.py:1 … def f(): pass … assignment … seed = 1"),
        ("for x in [1]:\n    pass\n", "config.py:1 … for x in [1]: pass … assignment … seed = 1"),
        ("x = missing\nconfig = {}\n", "missing … literal … name"),
        ("x = {}\nconfig = {'a': x['b']}\n", "config.py:2 … fit together … 'b'"),
        ("if True:\n    exit()\nconfig = {}\n", "it ends here"),
        ("if now():\n    x = 1\nconfig = {}\n", "now() … condition … file"),
        ("x = 'a' * 10 ** 9\nconfig = {}\n", "fit together"),
        ("x = 10 ** 9\nconfig = {}\n", "fit together"),
        ("x = 10000000000 * 10000000000\nconfig = {}\n", "10000000000 * 10000000000 … size"),
        ("a = [0, 0]\n" + "a = [a, a]\n" * 40 + "config = {'a': a}\n", "size"),
        ("config = {'a': lambda: 1}\n", "lambda: 1 … literal"),
        ("config = {", "is not Python"),
        ("x = " + "-" * 100_000 + "1\n", "config.py"),
    ],
)
def test_other_python_is_refused_in_one_line(tmp_path, text, message):
    with pytest.raises(ConfigError, match=facts(message)) as raised:
        read(tmp_path, text)
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.py does not exist"):
        read_python_config(tmp_path / "none.py")
