"""The README of a trained policy."""

_FULL = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(FOLDER)
tokenizer = AutoTokenizer.from_pretrained(FOLDER)
"""
_ADAPTER = """\
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

model = AutoPeftModelForCausalLM.from_pretrained(FOLDER)
tokenizer = AutoTokenizer.from_pretrained(FOLDER)
"""


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
        f"FOLDER is the path of this folder:\n\n```python\n{_ADAPTER if adapter else _FULL}```\n"
    )
