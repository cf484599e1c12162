"""The README of a trained policy, and how a program loads it."""

_FULL = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained({folder})
tokenizer = AutoTokenizer.from_pretrained({folder})
"""
_ADAPTER = """\
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer, GenerationConfig

model = AutoPeftModelForCausalLM.from_pretrained({folder})
tokenizer = AutoTokenizer.from_pretrained({folder})
ends = GenerationConfig.from_pretrained({folder}).eos_token_id
model.generation_config.eos_token_id = ends
"""
_ON_BASE = """\
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

base = AutoModelForCausalLM.from_pretrained({base})
model = PeftModel.from_pretrained(base, {folder})
tokenizer = AutoTokenizer.from_pretrained({folder})
ends = GenerationConfig.from_pretrained({folder}).eos_token_id
model.generation_config.eos_token_id = ends
"""


def loading_code(adapter: bool, folder: str = "FOLDER", base: str | None = None) -> str:
    """Return a Markdown block of Python that loads a policy.

    Args:
        adapter: whether the folder is a LoRA adapter, not a whole model.
        folder: a Python expression for its path.
        base: a Python expression for the base of an adapter. By default `adapter_config.json`
            names it.
    """
    code = _FULL if not adapter else _ADAPTER if base is None else _ON_BASE
    return f"```python\n{code.format(folder=folder, base=base)}```\n"


def model_card(policy: str, adapter: bool, origin: str) -> str:
    """Return the README of one policy.

    Args:
        adapter: whether the folder is a LoRA adapter, not a whole model.
        origin: the run that trained it.
    """
    kind = "a LoRA adapter in the format of PEFT" if adapter else "a model of transformers"
    base = (
        "`adapter_config.json` names its base model (`base_model_name_or_path`): a name of the "
        "hub, or a folder of this machine. If you move that folder, change the key.\n\n"
        if adapter
        else ""
    )
    return (
        f"# {policy}\n\n"
        f"The policy `{policy}`, {kind}. Motet trained it in {origin}. The config of the run says "
        "which agents it plays.\n\n"
        f"{base}"
        f"FOLDER is the path of this folder:\n\n{loading_code(adapter)}"
    )
