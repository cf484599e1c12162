"""The tables of docs/published.md: each published command, on small files with published keys."""

import json
import re
import shlex

import pytest

import motet
from motet.config.paths import config_path
from motet.config.yaml import read_yaml
from motet_published.command import config_of, main
from motet_published.translate import TRAINERS as TRAINER_TABLE
from motet_published.translate import translate
from motet_tasks.calls.game_test import ROW as CALL_ROW
from motet_tasks.coding.classes_test import ROW as CLASS_ROW
from motet_tasks.minecraft.house_build import HouseBuild
from motet_tasks.minecraft.str_build import StrBuild
from motet_tasks.travel.game_test import ROW as TRIP_ROW
from tests.fixtures.model_folders import make_model_folder
from tests.fixtures.published_commands import COMMANDS, problem
from tests.fixtures.wide import widely
from tests.small_runs import ROOT, steps

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)
PAGE = (ROOT / "docs" / "published.md").read_text()
ROWS = re.findall(r"^\| `(python [^`]*)` \|[^|]*\| ([^|]*) \|", PAGE, re.MULTILINE)
"""(command, how it was tried) of each row of the page."""
TRAINERS = {"train_ppo_v2_multi_agent_multi_model": "maporl"}
"""Published script -> trainer, where the script is not train_TRAINER."""

AGENT = """\
agent_model: {name: Qwen/Qwen3-1.7B, type: qwen, temperature: 0.7, top_p: 0.9, top_k: null,
  max_length: 2048, torch_dtype: auto}
agents: null
"""
OUTPUT = """\
output: {base_dir: out, verbose: false, save_final_model: true, save_path: out}
reward_processor: {enabled: true, scale_factor: 1.0, shift: 0.0}
wandb: {project: comlrl, entity: OpenMLRL, name: small, tags: [small]}
"""
WRITING = """\
dataset: {name: DATA, type: KIND, train_split: "train[:1000]", eval_split: "val[:1000]"}
tokenizer: {padding_side: left}
critic_model: null
critics: null
TRAINER:
  parallel_training: none
  num_turns: 1
  num_train_epochs: 1
  agent_learning_rate: 5.0e-06
  logging_steps: 400
  num_generations: 4
  max_new_tokens: 512
  joint_mode: aligned
  rollout_buffer_size: 2
  train_batch_size: 2
  advantage_normalization: true
  eval_interval: 4
  eval_num_samples: 4
  eval_batch_size: 1
"""


def writing(kind, trainer):
    keys = WRITING.replace("KIND", kind).replace("TRAINER", trainer)
    return AGENT + keys + OUTPUT


FILES = {
    "grpo_arxiv_config.yaml": writing("arxiv", "grpo"),
    "magrpo_arxiv_config.yaml": writing("arxiv", "magrpo"),
    "magrpo_tldr_config.yaml": writing("tldr", "magrpo"),
    "magrpo_classeval_config.yaml": AGENT
    + OUTPUT.replace("shift: 0.0", "shift: -6.0")
    + """\
critic_model: null
dataset: {name: DATA, type: classeval, train_split: "test[:66]", eval_split: "test[66:82]"}
external: {mode: code_feedback, original_prompt: true, previous_response: true,
  external_prompt_passthrough: false}
magrpo:
  parallel_training: none
  num_agents: 2
  num_turns: 2
  num_train_epochs: 13
  agent_learning_rate: 1e-5
  num_generations: 2
  max_new_tokens: 600
  discount: 0.9
  joint_mode: aligned
  early_termination_threshold: -0.2
  rollout_buffer_size: 1
  train_batch_size: 1
  advantage_normalization: true
""",
    "mt_magrpo_first_config.yaml": """\
model:
  name: Qwen/Qwen2.5-Coder-3B
  type: qwen
  temperature: 0.7
  top_p: 0.9
  max_length: 2048
  tokenizer_kwargs: {trust_remote_code: true}
  model_kwargs: {trust_remote_code: true, torch_dtype: bfloat16}
dataset: {name: DATA, type: humaneval, train_split: "test[33:133]", eval_split: "test[:32]"}
output: {base_dir: out, save_final_model: true}
magrpo:
  num_turns: 2
  num_train_epochs: 7
  per_device_train_batch_size: 1
  learning_rate: 1.0e-5
  logging_steps: 50
  save_steps: 200
  num_generations: 4
  max_new_tokens: 256
  beta: 0.02
  turn_gradient_weights: [1.2, 0.8]
  num_turns: 2
  expert_model: deepseek-coder
  early_termination_weight: 2.0
agents: {num_agents: 2}
wandb: {project: mlrl, entity: me, name: mt, dir: out, tags: [mt]}
""",
    "ac_che_config.yaml": AGENT
    + OUTPUT
    + """\
critic_model: {name: Qwen/Qwen3-1.7B, type: qwen, temperature: 0.7, max_length: 2048,
  torch_dtype: auto}
critics: null
dataset: {name: DATA, type: coophumaneval, train_split: "train[16:]", eval_split: "train[:16]"}
external: {mode: level_feedback, sandbox_slice: 1}
ac:
  parallel_training: auto
  num_turns: 2
  num_train_epochs: 80
  agent_learning_rate: 5.0e-6
  critic_learning_rate: 5.0e-6
  value_loss_coef: 0.6
  advantage_normalization: true
  rollout_buffer_size: 4
  max_new_tokens: 256
  top_k: null
  discount: 0.9
  early_termination_threshold: -0.2
  eval_interval: 40
  eval_num_samples: 4
  eval_batch_size: 1
  reward_shift: -4
""",
}
"""Small published configs that are not in experiments/configs."""
MAPORL = """
from datetime import datetime
from peft import LoraConfig, LoftQConfig

server_dict = {"40gb": "http://there:8501/predict", "some/phi": "http://there:8501/predict"}
random_seed = 42
dataset_name = "GSM8k"
if dataset_name == "ANLI":
    max_output_length = 300
elif dataset_name == "GSM8k":
    max_output_length = 300
base_model_dict = {"phi3": "some/phi"}
base_model_name = "phi3"
base_model = base_model_dict[base_model_name]
peft_config = LoraConfig(r=8, loftq_config=LoftQConfig(loftq_bits=4), lora_alpha=16,
    lora_dropout=0.05, bias="none", task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"])
policy_separation = SEPARATED
collaboration_separation = True
task_training = False
if LATER and policy_separation:
    collaboration_separation = False
    task_training = True
learning_rate = 1e-5
output_dir = f"ppo_{base_model_name}_lr_{learning_rate}_policySep_{policy_separation}" + "_x" * 1
now = datetime.now()
config = {
    "server_dict": server_dict, "reload_dir": output_dir, "reload": True,
    "agent_num": 2, "round_num": TURNS, "turn_based_training": BLOCKS,
    "policy_separation": policy_separation,
    "collaboration_separation": collaboration_separation, "task_training": task_training,
    "rule_horizon": "discounted_sum", "rule_agent_share": "all", "rule_discount": 0.3,
    "value_simplification": True, "num_mini_batches": 1, "total_episodes": None,
    "local_rollout_forward_batch_size": 3, "num_sample_generations": 100, "num_ppo_epochs": 4,
    "vf_coef": 0.1, "kl_coef": 0.002, "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 4, "dataset_name": dataset_name, "base_model": base_model,
    "sft_model_path": base_model, "stop_token": "eos", "max_input_length": 200,
    "min_output_length": 50, "max_output_length": max_output_length, "peft": True,
    "peft_config": peft_config, "special_tokens": {"additional_special_tokens": ["<<", ">>"]},
    "no_reward_model": True, "reward_model_dir": "reward", "reward_baseline": 0.0,
    "penalty_reward_value": -10, "non_eos_penalty": PENALTY, "non_box_penalty": True,
    "score_penalty_for_nonvalid": False, "summary": False, "reward_feedback": False,
    "learning_rate": learning_rate, "adafactor": True, "early_stopping": False,
    "half_precision_backend": True, "fp16": False, "bf16": True, "load_in_8bit": True,
    "adam_beta1": 0.9, "adam_beta2": 0.95, "warmup_steps": 10, "eval_batch_size": 4,
    "evaluation_strategy": "steps", "eval_steps": 300, "eval_accumulation_steps": 1,
    "logging_strategy": "steps", "logging_steps": 10, "save_strategy": "steps", "save_steps": 100,
    "test_len": 100, "criteria_for_consensus_percentage": 1.1,
    "criteria_for_consensus_reward_threshold": 1.1, "output_dir": output_dir,
    "report_to": "wandb", "deepspeed": "config/ds_config.json",
    "run_name": f"ppo_{now.strftime('%y%m%d')}", "random_seed": random_seed, "debug": False,
}
"""


def maporl(turns, *, separated, blocks, later, penalty=False):
    text = MAPORL.replace("TURNS", str(turns)).replace("SEPARATED", str(separated))
    return (
        text.replace("BLOCKS", str(blocks))
        .replace("LATER", str(later))
        .replace("PENALTY", str(penalty))
        .replace(' + "_x" * 1', "")
    )


_PPO = "config_ppo2_multi_agent2"
FILES |= {
    f"{_PPO}_turn2_gsm8k_noverifier.py": maporl(
        2, separated=True, blocks=True, later=False, penalty=True
    ),
    f"{_PPO}_turn3_gsm8k_reloadF.py": maporl(3, separated=False, blocks=False, later=True),
    f"{_PPO}_turn3_gsm8k_reloadF_turn.py": maporl(3, separated=True, blocks=True, later=True),
    f"{_PPO}_turn3_gsm8k_reloadT.py": maporl(3, separated=False, blocks=False, later=True),
    f"{_PPO}_turn3_gsm8k_reloadT_turn.py": maporl(3, separated=True, blocks=True, later=True),
}
PREFERENCES = """\
agent_model: {name: Qwen/Qwen2.5-Coder-3B, type: qwen, temperature: 0.6, top_p: 0.6, top_k: null,
  special_tokens: {}, torch_dtype: bfloat16}
agents: null
dataset: {name: DATA, type: coophumaneval, train_split: "train[16:]", eval_split: "train[:16]"}
seed: 42
external: {mode: level_feedback, sandbox_slice: 1}
TRAINER:
  parallel_training: none
  agent_devices: ["cuda:0"]
  num_agents: 2
  collaboration_mode: decentralized
  num_turns: 1
  num_train_epochs: 2
  agent_learning_rate: 2.0e-05
  logging_steps: 50
  preference_num_candidates: 20
  preference_pairs_per_sample: 4
  dpo_beta: 0.1
  use_environment_step: true
  environment_steps_per_pair: 2
  max_new_tokens: 256
  discount: 1.0
  joint_mode: aligned
  early_termination_threshold: null
  rollout_buffer_size: 4
  train_batch_size: 4
  advantage_normalization: true
  eval_interval: 4
  eval_num_samples: 4
  eval_batch_size: 1
"""
ONE_SHOT = "  pair_selection: reward_gap\n"
ITERATIVE = """\
  pair_selection: comparator_reward
  num_iterations: 4
  preference_replay_mode: lambda_decay
  preference_replay_lambda: 0.5
  preference_replay_sample_size: 264
  log_reward_distribution: true
  policy_checkpoint_dir: null
  comparator_policy: current
  comparator_generation_mode: decentralized
  comparator_centralized_agent_index: 0
  comparator_model_name: null
  comparator_agents: null
  comparator_devices: null
  comparator_num_candidates: null
  comparator_history_k: null
  comparator_api_url: null
  comparator_api_format: generic
  comparator_api_model: null
  comparator_api_max_n_per_request: null
  comparator_api_key_env: null
"""
LEARNT_REWARD = """\
  num_generations: 4
  rl_algorithm: magrpo
  reward_model_name: null
  reward_model_device: cuda:0
  reward_learning_rate: 1.0e-05
  reward_num_train_epochs: 2
  reward_train_batch_size: 4
  reward_max_length: 2048
  reward_freeze_backbone: false
"""
FILES |= {
    f"{name}_che_config.yaml": PREFERENCES.replace("TRAINER", name)
    + (ITERATIVE if name.endswith("_iter") else ONE_SHOT)
    + (LEARNT_REWARD if name.startswith("marlhf") else "")
    + ("  preference_scoring_reward: task\n" if name == "marlhf_iter" else "")
    + OUTPUT.replace("shift: 0.0", "shift: -4")
    for name in ("madpo", "madpo_iter", "marlhf", "marlhf_iter")
}
BUILDING = """\
agent_model: {name: Qwen/Qwen3-4B-Instruct-2507, type: qwen, temperature: 0.6, top_p: 0.6,
  max_length: 2048, dtype: bf16}
agents: null
critic_model: CRITIC
critics: null
dataset: {name: KIND, type: KIND, PATH, train_split: "[:8]", eval_split: "[8:]"}
output: {base_dir: output, save_final_model: false, save_path: output/final_model, verbose: false}
external: {mode: MODE, original_prompt: true, previous_response: true}
TRAINER:
  num_agents: 2
  num_turns: 4
  num_train_epochs: 20
  agent_learning_rate: 5e-6
  logging_steps: 1
  num_generations: 2
  max_new_tokens: 512
  temperature: 0.6
  top_p: 0.6
  top_k: null
  discount: 0.9
  early_termination_threshold: -0.1
  rollout_buffer_size: 1
  train_batch_size: 1
  eval_interval: 2
  eval_num_samples: 2
  eval_batch_size: 1
"""
BUILT_ALONE = {"magrpo": "  joint_mode: aligned\n  advantage_normalization: true\n"}
_CRITIC = "  critic_learning_rate: 5e-6\n  value_loss_coef: 0.6\n"
BUILT_ALONE["maac"] = _CRITIC + "  critic_type: v\n"
BUILT_ALONE["iac"] = _CRITIC + "  value_clip_range: 0.05\n  use_separate_critic: true\n"
BUILDERS = {
    "str_build": """\
prompt: {provide_graph: false, use_chat_template: true}
task: {block_agent1: [oak_planks, stone, air], block_agent2: [white_concrete, obsidian, air],
  max_commands: 300}
""",
    "house_build": """\
prompt: {use_chat_template: true}
task:
  block_agent1: [white_concrete, obsidian, stone_stairs, stone_bricks, planks, air]
  block_agent2: [white_concrete, obsidian, stone_stairs, stone_bricks, planks, air]
  max_commands: 600
  limited_resource: true
  player: {hp: 5}
  spider: {num: 3, atk_low: 1, atk_high: 3}
""",
}


def building(kind, trainer):
    critic = "null" if trainer == "magrpo" else "{name: some/model, type: qwen, dtype: bf16}"
    string = kind == "str_build"
    keys = BUILDING.replace("KIND", kind).replace("TRAINER", trainer).replace("CRITIC", critic)
    path = "csv_path: ../dataset/data.csv, spacing: 2, local_z: 0"
    keys = keys.replace("PATH", path if string else "json_path: ../dataset/data.json")
    mode = "position_feedback" if string else "score_feedback, lim: 20"
    reward = "reward_processor: {enabled: true, scale_factor: 1.0, shift: -1.0}\n"
    wandb = "wandb: {project: p, entity: OpenMLRL, run_name: r, dir: output, tags: [t]}\n"
    return keys.replace("MODE", mode) + BUILT_ALONE[trainer] + BUILDERS[kind] + reward + wandb


FILES |= {
    f"{kind}_{trainer}_config.yaml": building(kind, trainer)
    for kind in BUILDERS
    for trainer in BUILT_ALONE
}
CALLING = """\
agent_model: {name: Qwen/Qwen3-8B, type: qwen, temperature: 0.7, top_p: 0.8, top_k: null,
  special_tokens: {}, torch_dtype: bfloat16, attn_implementation: eager}
agents: null
dataset: {name: DATA, type: bfcl, version: v4, train_split: train, eval_split: eval,
  categories: CATEGORIES, task_types: null, max_train_samples: null, max_eval_samples: null}
seed: 42
output: {base_dir: out, verbose: false, save_final_model: false}
bfcl: {role_mode: self_select}
reward_processor: {enabled: false, scale_factor: 1.0, shift: null}
wandb: {enabled: true, project: p, entity: OpenMLRL, name: n, dir: out, tags: [t]}
bfcl_reward: REWARD
TRAINER:
  parallel_training: mp
  agent_devices: ["cuda:0", "cuda:1"]
  num_agents: 2
  num_turns: 1
  num_train_epochs: 4
  agent_learning_rate: 2.0e-05
  logging_steps: 20
  max_new_tokens: 256
  discount: 1.0
  early_termination_threshold: null
  rollout_buffer_size: 4
  train_batch_size: 4
  advantage_normalization: true
  eval_interval: 2
  eval_num_samples: 16
  eval_batch_size: 1
  reference_kl_enabled: false
  reference_kl_coef: 0.1
  reference_devices: null
"""
_WEIGHTS = """{parse_weight: 0.05, function_weight: 0.25, argument_weight: 0.35,
  count_weight: 0.10, balance_weight: 0.15, exact_bonus: 0.20, overlap_penalty: 0.20,
  lazy_agent_penalty: 0.15, extra_call_penalty: 0.05, self_duplicate_penalty: 0.10,
  min_reward: -0.4, max_reward: 1.2}"""
_SEQUENCE_WEIGHTS = """{parse_weight: 0.05, sequence_function_weight: 0.15,
  sequence_argument_weight: 0.20, sequence_order_weight: 0.25, sequence_prefix_weight: 0.10,
  sequence_count_weight: 0.10, sequence_balance_weight: 0.15, sequence_exact_bonus: 0.20,
  sequence_overlap_penalty: 0.15, sequence_lazy_agent_penalty: 0.25,
  sequence_extra_call_penalty: 0.15, min_reward: -0.4, max_reward: 1.2}"""
_ALIGNED = "  joint_mode: aligned\n  advantage_mode: mean\n"
_CANDIDATES = """\
  preference_num_candidates: 20
  preference_pairs_per_sample: 4
  dpo_beta: 0.1
  use_environment_step: true
  environment_steps_per_pair: 2
"""
_VALUES = """\
  critic_learning_rate: 5.0e-06
  value_loss_coef: 0.6
  critic_type: v
"""
_COPIED = "r_policy: current_copy"
_HEADS = """\
  critic_devices: null
  value_clip_range: 0.2
  use_separate_critic: false
  critic_value_head_hidden_dim: null
  value_head_hidden_dim: null
"""
CALLED_ALONE = {
    "magrpo": _ALIGNED + "  num_generations: 4\n",
    "iac": _VALUES + _HEADS + "  num_generations: 4\n",
    "maac": _VALUES + "  num_generations: 4\n",
    "madpo": _ALIGNED + _CANDIDATES + ONE_SHOT + "  num_generations: 4\n",
    "madpo_iter": _ALIGNED + _CANDIDATES + ITERATIVE.replace("r_policy: current", _COPIED),
    "marlhf": _ALIGNED + _CANDIDATES + ONE_SHOT + LEARNT_REWARD,
    "marlhf_iter": _ALIGNED + _CANDIDATES + ITERATIVE + LEARNT_REWARD
    + "  preference_scoring_reward: task\n",
}  # fmt: skip


def calling(trainer, categories="[parallel, parallel_multiple]", reward=_WEIGHTS):
    keys = CALLING.replace("TRAINER", trainer).replace("CATEGORIES", categories)
    return keys.replace("REWARD", reward) + CALLED_ALONE[trainer]


FILES |= {f"native_parallel_{trainer}_config.yaml": calling(trainer) for trainer in CALLED_ALONE}
FILES["multiturn_flat_magrpo_config.yaml"] = calling(
    "magrpo", "[multi_turn_base_step, multi_turn_miss_func_step]", _SEQUENCE_WEIGHTS
).replace("joint_mode: aligned", "joint_mode: cross")
FILES["single_turn_magrpo_config.yaml"] = """\
agent_model: {name: Qwen/Qwen3-4B-Instruct-2507, type: qwen, temperature: 0.7, top_p: 0.8,
  top_k: null, special_tokens: {}, torch_dtype: bfloat16, attn_implementation: sdpa,
  gradient_checkpointing: true}
agents: null
dataset:
  name: DATA
  type: travelplanner
  revision: 8736504ecfc31b7f8b7e40122873c337e83fff7c
  config_name: validation
  source_split: validation
  filters: {days: [3, 5], levels: [easy, medium], visiting_city_numbers: [1, 2],
    select_shortest: 80, max_reference_chars: null}
  partition: {stratify_by: [days, level], interleave_eval: true}
  train_samples: 60
  eval_samples: 20
seed: 42
output: {base_dir: out, verbose: true, save_final_model: true}
travel: {role_mode: partitioned_roles, use_chat_template: true, system_prompt: Return JSON.,
  force_json_prefix: true, constrain_json_skeleton: true, max_value_tokens: 32,
  normalize_value_log_probs: true, stop_after_complete_json: true, greedy_eval: true,
  curriculum_short_epochs: 8, curriculum_days: [3]}
travel_reward: {protocol_progress_weight: 0.02, recovered_semantic_weight: 0.03,
  action_validity_weight: 0.04, team_action_weight: 0.02, strict_balance_weight: 0.14,
  strict_quality_weight: 0.57, strict_grounding_weight: 0.08, final_success_bonus: 0.10,
  assignment_coverage_weight: 0.20, required_grounded_weight: 0.25, grounding_f1_weight: 0.15,
  commonsense_weight: 0.25, hard_constraint_weight: 0.15, grounding_support_floor: 0.10,
  invalid_action_penalty: 0.10, conflict_penalty: 0.05, overlap_penalty: 0.05,
  reference_copy_penalty: 0.10, overlong_penalty: 0.05, min_reward: -0.25, max_reward: 1.0}
magrpo: {parallel_training: mp, agent_devices: ["cuda:0", "cuda:1"], num_agents: 2, num_turns: 1,
  num_train_epochs: 25, agent_learning_rate: 2.0e-05, logging_steps: 20, num_generations: 4,
  max_new_tokens: 1024, discount: 1.0, joint_mode: aligned, early_termination_threshold: null,
  rollout_buffer_size: 10, train_batch_size: 10, advantage_normalization: false,
  advantage_mode: mean, eval_interval: 60, eval_num_samples: 4, rotate_eval_subset: false,
  final_eval_num_samples: 20, eval_batch_size: 1, eval_at_end: true, reference_kl_enabled: false,
  reference_kl_coef: 0.1, reference_devices: null}
reward_processor: {enabled: true, scale_factor: 1.0, shift: null}
wandb: {enabled: true, project: p, entity: OpenMLRL, name: n, dir: out, tags: [t]}
"""
_MAPL = """\
extends: single_turn_magrpo_config.yaml
travel: {curriculum_short_epochs: 0, preference_generation_batch_size: 1,
  offload_inactive_actors: true}
mapl: {parallel_training: none, agent_devices: ["cuda:0", "cuda:0"], num_agents: 2, num_turns: 1,
  joint_mode: aligned, agent_learning_rate: 2.0e-5, logging_steps: 20, max_new_tokens: 1024,
  rollout_buffer_size: 10, train_batch_size: 10, advantage_normalization: false,
  advantage_mode: mean, eval_interval: 60, eval_num_samples: 4, eval_batch_size: 1,
  reference_kl_enabled: false, preference_num_candidates: 20, preference_pairs_per_sample: 6,
  dpo_beta: 0.1, use_environment_step: true, environment_steps_per_pair: 2}
evaluation: {at_end: true, final_num_samples: 20}
wandb: {project: Travel, dir: null, tags: [mapl]}
"""
_ONLINE = """\
  rl_algorithm: magrpo
  num_generations: 4
  reward_model_name: Qwen/Qwen3-4B-Instruct-2507
  reward_model_device: cuda:0
  reward_learning_rate: 1.0e-5
  reward_num_train_epochs: 1
  reward_train_batch_size: 1
  reward_max_length: 32768
  reward_freeze_backbone: false
"""
_REFRESHED = """\
  num_iterations: 7
  comparator_policy: current_copy
  comparator_generation_mode: decentralized
  comparator_devices: ["cuda:0", "cuda:0"]
  preference_replay_mode: lambda_decay
  preference_replay_lambda: 0.8
  log_reward_distribution: false
"""
FILES["single_turn_mapl_config.yaml"] = _MAPL
FILES |= {
    f"single_turn_{trainer}_config.yaml": "extends: single_turn_mapl_config.yaml\n"
    f"algorithm: {trainer}\nmapl:\n  num_train_epochs: 7\n  pair_selection: "
    + ("comparator_reward\n" if trainer.endswith("_iter") else "reward_gap\n")
    + (_REFRESHED if trainer.endswith("_iter") else "")
    + (_ONLINE if trainer.startswith("marlhf") else "")
    for trainer in ("madpo", "madpo_iter", "marlhf", "marlhf_iter")
}
HOUSE = {
    "inventory": {"C": "white_concrete", "A": "air"},
    "target_spec": {
        "type": "y_layers",
        "size": [3, 2, 2],
        "layers": [{"y": 0, "rows": ["CCC", "CCC"]}, {"y": 1, "rows": ["CAC", "CCC"]}],
    },
}
FILTERED = {"official_category": "parallel", "task_type": "travel/local_services/logistics"}
EXTENDED = ("single_turn_magrpo_config.yaml", "single_turn_mapl_config.yaml")
DATA = {
    "str_build": lambda number: {"string": "ABCD"[number]},
    "house_build": lambda number: {"task_id": f"house{number}", **HOUSE},
    "native_parallel": lambda number: {**CALL_ROW, **FILTERED, "id": f"parallel_{number}"},
    "multiturn_flat": lambda number: {
        **CALL_ROW,
        "official_category": "multi_turn_base_step",
        "id": f"step_{number}",
    },
    "single_turn": lambda number: {**TRIP_ROW, "id": f"trip_{number}"},
    "code": problem,
    "classeval": lambda number: {**CLASS_ROW, "task_id": f"ClassEval_{number}"},
    "tldr": lambda number: {"prompt": f"Post {number}.", "completion": ""},
    "arxiv": lambda number: {"abstract_text": f"We study {number}."},
    "gsm8k": lambda number: {"question": f"What is {number} + 1?", "answer": f"#### {number + 1}"},
}
"""Kind of rows -> one row."""


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model_folder(
        tmp_path_factory.mktemp("models") / "tiny", "qwen3", chat_template=True, context=4096
    )


def run(command, model, folder, *more):
    """Run a published command, made small with overrides that a user could give."""
    _, script, *words = shlex.split(command)
    stem = script.rpartition("/")[2].removesuffix(".py")
    trainer = TRAINERS.get(stem, stem.removeprefix("train_"))
    place = words.index("--config") + 1
    file = words[place].rpartition("/")[2]
    kinds = (
        *("classeval", "tldr", "arxiv", *BUILDERS, "native_parallel", "multiturn_flat"),
        "single_turn",
    )
    kind = next((name for name in kinds if name in file), "code")
    kind = "gsm8k" if trainer == "maporl" else kind
    rows = folder / "rows.jsonl"
    rows.write_text("\n".join(json.dumps(DATA[kind](number)) for number in range(4)))
    if file in FILES:
        words[place] = str(folder / file)
        for one in [file, *(EXTENDED if "extends:" in FILES[file] else ())]:
            (folder / one).write_text(FILES[one].replace("name: DATA", f"name: {rows}"))
    else:
        words[place] = f"experiments/configs/{file}"
    small = {
        "motet.threads": 1,
        "motet.report.tensorboard": "false",
        "motet.sandbox.workers": 1,
    }
    source = f"{{path: {rows}, split: 'train[:2]'}}"
    small |= {"motet.data.train": source, "motet.data.eval": source, "motet.train.steps": 2,
              "motet.train.epochs": "null", "motet.train.tasks_per_step": 2}  # fmt: skip
    if trainer == "maporl":
        small |= {"base_model": model, "sft_model_path": model, "bf16": "false", "warmup_steps": 0,
                  "load_in_8bit": "false", "report_to": "none", "max_output_length": 8,
                  "num_ppo_epochs": 1, "output_dir": folder / "runs" / "maporl"}  # fmt: skip
    else:
        small |= {"model_name": model, f"{trainer}.num_generations": 2, "output.base_dir":
                  folder / "runs", f"{trainer}.max_new_tokens": 8,
                  f"{trainer}.agent_devices": "null"}  # fmt: skip
        if "wandb: {enabled: true" in FILES.get(file, "") or kind == "single_turn":
            small |= {"wandb.enabled": "false"}
        if "--model_name" in words:
            words[words.index("--model_name") + 1] = str(model)
    if trainer.startswith(("madpo", "marlhf")):
        small |= {f"{trainer}.preference_num_candidates": 4}
    if trainer.startswith("marlhf"):
        small |= {f"{trainer}.reward_model_device": "null"}
        small |= {f"{trainer}.reward_model_name": "null"}
    if trainer.endswith("_iter"):
        small |= {f"{trainer}.num_iterations": 2}
    if trainer in ("ac", "iac", "maac"):
        small |= {f"{trainer}.num_generations": 1}
        small |= (
            {}
            if "use_separate_critic: false" in FILES.get(file, "")
            else {"critic_model.name": model}
        )
    overrides = [f"{key}={value}" for key, value in small.items()]
    main(trainer, [*words, "--override", *overrides, *more])


@pytest.mark.parametrize("kind", BUILDERS)
def test_the_published_minecraft_config_is_the_one_of_configs(kind, model, tmp_path) -> None:
    """Without small overrides: the environment, the plan, the algorithm and the decoding."""
    file = tmp_path / "configs" / f"{kind}_magrpo_config.yaml"
    data = tmp_path / "dataset" / ("data.csv" if kind == "str_build" else "data.json")
    for path, content in ((file, building(kind, "magrpo")), (data, "string\nA\n")):
        path.parent.mkdir()
        path.write_text(content)
    layers = [read_yaml(file, last_counts=True)]
    config = config_of(translate(layers, TRAINER_TABLE["magrpo"], kind))
    own = motet.read_config(config_path(kind))
    assert config.data.train.path == str(data)
    assert (config.data.train.split, config.data.eval.split) == ("train[:8]", "train[8:]")
    assert config.rollout == own.rollout
    assert config.algorithm == own.algorithm
    assert config.decode == own.decode
    found, expected = (
        validated(one.environment.name, one.environment.options) for one in (config, own)
    )
    if kind == "house_build":  # published names the blocks that every house of its data has
        assert found.palettes[0][0] == "white_concrete"
        found = found.model_copy(update={"palettes": None})
    # The small file has one shift for both. Without a history, the problem is always restated.
    changes = {
        "reward": found.reward,
        "feedback": expected.feedback.model_copy(update={"restate_problem": True}),
    }
    assert found == expected.model_copy(update=changes)


def validated(name, options):
    kind = {"str_build": StrBuild, "house_build": HouseBuild}[name]
    return kind.Options.model_validate(json.loads(json.dumps(options)))


def ids(command):
    return " ".join(command.rpartition("/")[2].split()[:2])[:60]


_DRY = [command for command, _ in ROWS]


@pytest.mark.parametrize("command", widely(_DRY, keep=_DRY[::7]), ids=ids)
def test_a_published_command_passes_its_dry_run(command, model, tmp_path, capsys):
    run(command, model, tmp_path, "--dry-run")
    assert "no training was started" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()


OWN = [command for command, tried in ROWS if tried == "two steps" and command.split("--config ")[1].split()[0].rpartition("/")[2] in FILES]  # fmt: skip # noqa: E501
"""Commands that train here. The others that train are in experiments_test.py."""


_SHORT = ("marlhf_iter_che", "ac_che", "ppo2")


@pytest.mark.parametrize(
    "command",
    widely(OWN, keep=[one for one in OWN if any(part in one for part in _SHORT)]),
    ids=ids,
)
def test_a_published_command_trains_two_steps(command, model, tmp_path):
    run(command, model, tmp_path)
    (folder,) = (tmp_path / "runs").iterdir()
    assert len(steps(folder)) == 2
    assert motet.read_config(folder).train.steps == 2


def test_at_least_eleven_commands_train_and_the_others_train_elsewhere():
    trained = [" ".join(command.split()) for command, tried in ROWS if tried == "two steps"]
    elsewhere = {" ".join(command.replace("\\\n", "").split()) for command in COMMANDS}
    assert len(trained) >= 11
    assert set(trained) - elsewhere == {" ".join(command.split()) for command in OWN}
    assert len(OWN) == 12
