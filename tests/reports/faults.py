"""The faults of the reports, put into copies of Motet: each must be found by its test.

    python -m tests.reports.faults [WORD]

An entry of `FAULTS` replaces one piece of a file of the package by another, as in the report that
its test names. This process imports the large libraries, and each fault has a process of its own.
It prints one line per fault, and ends with 1 if a test passed in spite of its fault. `WORD`: only
tests whose name contains it.
"""

import contextlib
import io
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
HERE = Path("tests/reports")


class Edit(NamedTuple):
    """A fault: in `file` of the package, `old` (which occurs there) becomes `new`.

    The package is motet, unless the file begins with motet_serve/.
    """

    test: str
    """file::name of the test that must fail; with `[...]` only that case."""
    file: str
    old: str
    new: str
    also: tuple[tuple[str, str, str], ...] = ()
    """Further (file, old, new), where Motet prevents the fault in several places."""


TEXTS, NUMBERS = "texts_test.py::test_", "numbers_test.py::test_"
RUNS, ADAPTERS = "runs_test.py::test_", "adapters_test.py::test_"
FAULTS = [
    # ------------------------------------------------------------------------------------ texts
    Edit(
        TEXTS + "every_end_token_of_the_generation_config_ends_a_completion",
        "models/causal_lm.py",
        "self.eos_ids = self.ends.ids",
        "self.eos_ids = (tokenizer.eos_token_id,)",
    ),
    Edit(
        TEXTS + "the_end_of_a_completion_is_learned_although_it_is_also_the_padding[pad is eos]",
        "batch/packing.py",
        "mask_BL=_padded([[True] * len(_tokens(sample)) for sample in samples], torch.bool),",
        "mask_BL=_padded([[t != 1 for t in _tokens(s)] for s in samples], torch.bool),",
    ),
    Edit(
        TEXTS + "a_tokenizer_without_a_pad_token_trains_and_no_token_is_added",
        "models/causal_lm.py",
        "self.pad_id = _pad_id(",
        "tokenizer.pad_token or tokenizer.add_special_tokens({'pad_token': '[PAD]'})\n"
        "        self.pad_id = tokenizer.pad_token_id or _pad_id(",
    ),
    Edit(
        TEXTS + "a_prompt_begins_with_one_bos[True]",
        "models/bounded_text.py",
        "add_special_tokens=special",
        "add_special_tokens=True",
    ),
    Edit(
        TEXTS + "a_stop_string_is_found_inside_a_token_and_across_tokens[CA-AB-3]",
        "models/decode.py",
        "max(0, step + 1 - self._tail)",
        "step",
    ),
    Edit(
        TEXTS + "a_stop_string_is_found_inside_a_token_and_across_tokens[B-A-2]",
        "models/decode.py",
        "if any(stop in text for stop in",
        "if any(stop == text for stop in",
    ),
    Edit(
        TEXTS + "a_character_of_several_tokens_is_one_character_of_the_text",
        "models/completions.py",
        "return [(text, \"\") for text in texts]",
        "return [(''.join(tokenizer.decode([t], skip_special_tokens=True) for t in row), '')"
        " for row in tokens]",
    ),
    Edit(
        TEXTS + "a_completion_may_have_exactly_max_new_tokens",
        "models/decode.py",
        "(self._limit_B[row_B] > step + 1)",
        "(self._limit_B[row_B] > step + 2)",
    ),
    Edit(
        TEXTS + "a_row_of_the_embedding_without_a_token_is_sampled_and_trained",
        "models/completions.py",
        "return [(text, \"\") for text in texts]",
        "return [(''.join(tokenizer.convert_ids_to_tokens(list(row))), '') for row in tokens]",
    ),
    Edit(
        TEXTS + "the_tokens_that_were_sampled_are_trained_not_those_of_their_text",
        "models/completions.py",
        "        tokens=answer.tokens,\n        logprobs=answer.logprobs,",
        "        tokens=answer.tokens[1:],\n        logprobs=answer.logprobs[1:],",
    ),
    Edit(
        TEXTS + "a_template_that_drops_earlier_thoughts_changes_no_trained_completion",
        "models/content.py",
        "        return chat_text(tokenizer, rows)\n",
        "        return ''.join(chat_text(tokenizer, [row]) for row in rows)\n",
    ),
    Edit(
        TEXTS + "later_turns_go_through_the_template",
        "models/content.py",
        "own = _rendered(tokenizer, rows)",
        "own = chat_text(tokenizer, rows[:1]) + ''.join(row['content'] for row in rows[1:])",
    ),
    Edit(
        TEXTS + "thinking_is_turned_off_in_training_and_afterwards[file]",
        "models/chat_template.py",
        "tokenizer.chat_template = read_template(chosen.file)",
        "read_template(chosen.file)",
    ),
    Edit(
        TEXTS + "thinking_is_turned_off_in_training_and_afterwards[option]",
        "models/chat_template.py",
        "    if chosen.options:",
        "    if False:",
    ),
    Edit(
        TEXTS + "a_reward_can_read_the_special_tokens_of_an_answer[True]",
        "models/completions.py",
        "if answer.decode.show_special_tokens and not error:",
        "if False:",
    ),
    Edit(
        TEXTS + "a_stop_string_that_is_a_special_token_ends_a_completion",
        "models/completions.py",
        "return tuple(known[stop] for stop in stops if stop in known)",
        "return ()",
    ),
    Edit(
        TEXTS + "the_end_of_a_turn_that_is_not_eos_ends_a_completion",
        "models/completions.py",
        "{*self.eos, *self.added, *self.turn}",
        "{*self.eos, *self.added}",
    ),
    Edit(
        TEXTS + "a_run_keeps_the_date_of_its_template",
        "models/text_worker.py",
        "datetime.now() if asked[\"date\"] is None else",
        "datetime.now() if True else",
    ),
    Edit(
        TEXTS + "the_context_of_a_model_is_not_the_limit_of_its_tokenizer",
        "models/loading.py",
        "    return tokenizer, context\n",
        "    return tokenizer, min(context, tokenizer.model_max_length)\n",
    ),
    Edit(
        TEXTS + "a_completion_of_the_end_alone_is_a_completion",
        "models/completions.py",
        "    if error:",
        "    if error or not text:",
    ),
    Edit(
        TEXTS + "padding_on_the_left_changes_no_sample_and_no_log_probability",
        "models/rows.py",
        "return (mask_PL.long().cumsum(dim=1) - 1).clamp(min=0)",
        "return mask_PL.long().new_ones(mask_PL.shape).cumsum(dim=1) - 1",
    ),
    Edit(
        TEXTS + "special_tokens_that_a_row_spells_stay_text",
        "models/content.py",
        "if not spells and not _may_join(control, rows):",
        "if True:",
    ),
    Edit(
        TEXTS + "special_tokens_that_an_agent_spells_open_no_turn_of_its_partner",
        "models/content.py",
        "if not spells and not _may_join(control, rows):",
        "if True:",
    ),
    Edit(
        TEXTS + "an_answer_that_has_begun_is_continued",
        "models/content.py",
        "if not rows or rows[-1].get(\"role\") != \"assistant\":",
        "if True:",
    ),
    # ---------------------------------------------------------------------------------- numbers
    Edit(
        NUMBERS + "the_gradient_does_not_depend_on_the_micro_batches",
        "losses.py",
        ".sum(dim=1) * weight_B).sum()",
        ".sum(dim=1) * weight_B).mean()",
    ),
    Edit(
        NUMBERS + "an_advantage_stays_with_its_completion_in_every_micro_batch",
        "batch/packing.py",
        "samples, \"advantage\", [_advantages(s) for s in samples]",
        "samples, \"advantage\", [(samples[-1].advantage,) * len(_tokens(s)) for s in samples]",
    ),
    Edit(
        NUMBERS + "the_minibatches_of_a_step_together_are_the_step",
        "batch/packing.py",
        "sample.share * scale",
        "sample.share",
    ),
    Edit(
        NUMBERS + "training_sees_the_log_probabilities_of_sampling[temperature=0.5]",
        "models/forward.py",
        "temperature_BL[mask_BL], want_entropy",
        "temperature_BL[mask_BL] * 0 + 1, want_entropy",
    ),
    Edit(
        NUMBERS + "training_sees_the_log_probabilities_of_sampling[top_k=3]",
        "models/decode.py",
        "    return token_B, scaled_BV.gather(1, token_B[:, None]).squeeze(1) - total_B",
        "    kept_B1 = weight_BV.gather(1, token_B[:, None]) / cdf_BV[:, -1:]\n"
        "    return token_B, kept_B1.squeeze(1).log().float()",
    ),
    Edit(
        NUMBERS + "packed_rows_do_not_see_each_other",
        "models/rows.py",
        "positions.append((length_P[prompt_of_B, None] + after_L)[read_BL])",
        "positions.append((length_P.sum() + after_L).expand_as(read_BL)[read_BL])",
    ),
    Edit(
        NUMBERS + "completions_of_other_lengths_keep_their_own_logits",
        "models/rows.py",
        "ends_BL = (first_P + length_P - 1)[prompt_of_B, None]",
        "ends_BL = (first_P + length_P.max() - 1)[prompt_of_B, None]",
    ),
    Edit(
        NUMBERS + "dropout_is_off_in_sampling_and_in_training[all weights]",
        "models/causal_lm.py",
        "        model.eval()\n",
        "        model.train()\n",
        also=(
            ("models/loading.py", "if isinstance(module, nn.Dropout):", "if False:"),
            ("models/loading.py", "\"dropout\" in key or key.endswith", "key.endswith"),
            ("models/loading.py", "(\"pdrop\", ", "(\"nothing\", "),
        ),
    ),
    Edit(
        NUMBERS + "dropout_is_off_in_sampling_and_in_training[adapter]",
        "models/adapters.py",
        "self._peft.eval()",
        "self._peft.train()",
        also=(("models/adapters.py", "lora_dropout=0.0", "lora_dropout=0.5"),),
    ),
    Edit(
        NUMBERS + "the_difference_of_sampling_and_training_does_not_grow_without_learning",
        "models/learner.py",
        "group[\"lr\"] = rate",
        "group[\"lr\"] = max(rate, 1e-3)",
    ),
    Edit(
        NUMBERS + "the_entropy_is_that_of_completion_tokens_at_the_temperature",
        "batch/objectives.py",
        "tokens = int(mask_BL.sum())",
        "tokens = mask_BL.numel()",
    ),
    Edit(
        NUMBERS + "the_kl_term_of_the_loss_has_the_gradient_of_the_divergence",
        "losses.py",
        "return 0.5 * (logp_BL - reference_logp_BL).square()",
        "return logp_BL - reference_logp_BL",
    ),
    Edit(
        NUMBERS + "a_completion_without_advantage_has_the_gradient_of_the_divergence_alone",
        "batch/objectives.py",
        "if kl is not None:",
        "if False:",
    ),
    Edit(
        NUMBERS + "the_dual_clip_bounds_negative_advantages_only_and_reaches_the_loss",
        "losses.py",
        "            advantages_BL < 0.0, torch.maximum",
        "            advantages_BL < 9e9, torch.maximum",
    ),
    Edit(
        NUMBERS + "the_dual_clip_bounds_negative_advantages_only_and_reaches_the_loss",
        "batch/objectives.py",
        "Clip(loss.clip_low, loss.clip_high, loss.clip_dual)",
        "Clip(loss.clip_low, loss.clip_high)",
    ),
    Edit(
        NUMBERS + "checkpointing_blocks_keeps_every_gradient_of_an_adapter",
        "models/causal_lm.py",
        "use_reentrant=False",
        "use_reentrant=True",
    ),
    Edit(
        NUMBERS + "small_updates_of_bfloat16_weights_add_up",
        "models/backbone.py",
        "            weight.copy_(master)",
        "            weight.copy_(master)\n            master.copy_(weight)",
    ),
    Edit(
        NUMBERS + "the_norm_that_clips_is_that_of_the_whole_policy_and_of_no_other",
        "models/learner.py",
        "[parameter.grad for parameter in state.parameters if parameter.grad is not None]",
        "[parameter.grad for parameter in state.parameters[:2]]",
    ),
    # ------------------------------------------------------------------------------------- runs
    Edit(
        RUNS + "a_resumed_run_goes_on_with_the_same_data_rates_and_weights[adapter]",
        "models/learner.py",
        "own.steps_done, own.loss = facts[\"step\"], None",
        "own.steps_done, own.loss = 0, None",
    ),
    Edit(
        RUNS
        + "a_resumed_run_goes_on_with_the_same_data_rates_and_weights[all weights in bfloat16]",
        "assembly/models.py",
        "= parameter.detach()\n",
        "= parameter.detach().bfloat16().float()\n",
    ),
    Edit(
        RUNS + "a_resumed_run_goes_on_with_the_same_data_rates_and_weights[adapter]",
        "trainer/run.py",
        "range(start.step + 1, ",
        "range(start.step + 1 + (start.step == 2), ",
    ),
    Edit(
        RUNS + "a_run_is_not_resumed_with_other_rows",
        "api/resuming.py",
        "if fingerprint(tasks.get(split, ())) != before:",
        "if False:",
    ),
    Edit(
        RUNS + "every_row_is_played_once_per_pass_and_no_last_batch_is_dropped",
        "rollout/collect.py",
        "permutation(position // count)[position % count]",
        "permutation(position // (count - 1))[position % (count - 1)]",
    ),
    Edit(
        RUNS + "epochs_learn_several_times_from_one_set_of_samples",
        "batch/packing.py",
        "for epoch in range(epochs if samples else 0):",
        "for epoch in range(1 if samples else 0):",
    ),
    Edit(
        RUNS + "no_two_samples_share_their_random_numbers",
        "rollout/play.py",
        "keys=tuple(game.key(agent, path, g) for g in range(count))",
        "keys=tuple(game.key(path, g) for g in range(count))",
    ),
    Edit(
        RUNS + "the_seed_decides_the_samples_and_the_order_of_rows",
        "rollout/play.py",
        "return derive(self.run_seed, self.episode, *what)",
        "return derive(0, self.episode, *what)",
    ),
    Edit(
        RUNS + "an_evaluation_has_the_temperature_of_the_config_and_changes_nothing",
        "rollout/play.py",
        "decode=game.team.decode[agent],",
        "decode=game.team.decode[agent].model_copy(update={'temperature': 1.0})"
        " if 'evaluate' in game.episode else game.team.decode[agent],",
    ),
    Edit(
        RUNS + "the_sampler_has_the_weights_of_the_last_update",
        "models/sampler.py",
        "active = policies[0].active() if adapters is None else backbone.policy(None)",
        "adapters, active = None, backbone.policy(None)",
    ),
    Edit(
        RUNS + "an_async_reward_belongs_to_its_own_texts_and_is_asked_once",
        "environments/reward.py",
        "        result = await call(judge, task, texts)\n",
        "        result = await call(judge, task, texts)\n        await call(judge, task, texts)\n",
    ),
    Edit(
        RUNS + "an_async_reward_belongs_to_its_own_texts_and_is_asked_once",
        "environments/reward.py",
        "result = await call(judge, task, texts)",
        "result = judge(task, texts)",
    ),
    Edit(
        RUNS + "a_reward_that_is_no_number_is_a_fault_and_never_zero[nan]",
        "environments/reward.py",
        "if isinstance(number, Real) and math.isfinite(number):",
        "number = 0.0 if number != number else number\n"
        "        if isinstance(number, Real) and math.isfinite(number):",
    ),
    Edit(
        RUNS + "completions_are_compared_within_their_own_prompt",
        "credit/assign.py",
        "(s.id.episode, s.id.agent, s.id.path if",
        "(s.id.agent, s.id.path if",
    ),
    Edit(
        RUNS + "each_agent_learns_from_the_reward_that_was_returned_for_it",
        "settings/algorithm.py",
        "reward_sharing: Literal[\"all\", \"own\"] = \"own\"",
        "reward_sharing: Literal[\"all\", \"own\"] = \"all\"",
    ),
    Edit(
        RUNS + "equal_rewards_have_no_advantage",
        "credit/baselines.py",
        "SMALLEST_SPREAD = 1e-6",
        "SMALLEST_SPREAD = 0.0",
    ),
    Edit(
        RUNS + "one_other_reward_in_a_group_is_not_magnified",
        "credit/baselines.py",
        "    return advantages_S / torch.where(",
        "    own_S = (returns_S - means_S) ** 2 * 8 / 7\n"
        "    spread_S = (spread_S**2 * 8 - own_S).abs().sqrt() + 1e-5\n"
        "    return advantages_S / torch.where(",
    ),
    Edit(
        RUNS + "the_divergence_in_the_reward_changes_the_returns",
        "credit/assign.py",
        "    if algorithm.kl_in_reward is None:\n        return torch.zeros_like",
        "    if True:\n        return torch.zeros_like",
    ),
    Edit(
        RUNS + "the_lengths_that_are_logged_count_every_token",
        "rollout/summary.py",
        "for one in every if one.tokens is not None",
        "for one in every if one.tokens is not None and one.stop == 'stop'",
    ),
    Edit(
        RUNS + "a_column_that_nobody_uses_does_not_end_a_run",
        "rollout/record.py",
        "fields = encoded(dict(episode.task.fields))",
        "fields = dict(episode.task.fields)",
    ),
    Edit(
        RUNS + "rows_that_are_equal_and_rows_that_are_played_twice_are_tasks_of_their_own",
        "rollout/collect.py",
        "while seen[task.id] > 1",
        "while False and seen[task.id] > 1",
    ),
    # --------------------------------------------------------------------------------- adapters
    Edit(
        ADAPTERS + "the_adapter_of_every_agent_is_saved_in_pefts_format_and_is_its_own",
        "models/backbone.py",
        "self._adapters.save(adapter, folder)",
        "self._adapters.save(self.adapters[0], folder)",
    ),
    Edit(
        ADAPTERS + "an_adapter_learns_the_same_beside_another_one[pq]",
        "models/learner.py",
        "with oom_hint(learning, _LESS, policy.backbone.device), policy.active():",
        "with oom_hint(learning, _LESS, policy.backbone.device), policy.backbone.policy('p'):",
    ),
    Edit(
        ADAPTERS + "a_frozen_adapter_stays_and_the_other_one_learns",
        "models/backbone.py",
        "        self._adapters.load(name, folder)\n",
        "        self._adapters.add(name, Lora(), 0)\n",
    ),
    Edit(
        ADAPTERS + "the_reference_is_the_base_without_the_adapter",
        "assembly/models.py",
        "backbone, start, trainable=False)",
        "backbone, policy.adapter, trainable=False)",
    ),
    Edit(
        ADAPTERS + "the_reference_of_a_policy_that_begins_with_an_adapter_is_that_adapter",
        "assembly/models.py",
        "        if chosen.adapter is not None:\n            start",
        "        if False:\n            start",
    ),
    Edit(
        ADAPTERS + "a_trained_model_is_saved_once_and_loads_whole[True]",
        "models/backbone.py",
        "    model.save_pretrained(folder, state_dict=state)\n",
        "    model.save_pretrained(folder, state_dict=state)\n"
        "    from safetensors.torch import load_file, save_file\n"
        "    file = Path(folder) / 'model.safetensors'\n"
        "    held = load_file(file)\n"
        "    held['lm_head.weight'] = held['model.embed_tokens.weight'].clone()\n"
        "    save_file(held, file, {'format': 'pt'})\n",
    ),
    Edit(
        ADAPTERS + "the_scale_of_an_adapter_is_alpha_over_rank_everywhere",
        "models/adapters.py",
        "lora_alpha=lora.alpha,",
        "lora_alpha=lora.alpha * lora.rank,",
    ),
    Edit(
        ADAPTERS + "a_merged_export_of_adapted_tied_embeddings_is_the_same_policy",
        "motet_serve/exports/weights.py",
        "        _untie(adapted)\n",
        "        pass\n",
    ),
]  # fmt: skip


def copied(folder: Path) -> Path:
    """Copy the packages without their tests, and return the folder that holds them."""
    for source in ("motet/src/motet", "motet-serve/src/motet_serve"):
        shutil.copytree(
            ROOT / "packages" / source,
            folder / Path(source).name,
            ignore=shutil.ignore_patterns("*_test.py", "__pycache__"),
        )
    return folder


def _place(copy: Path, file: str) -> Path:
    return copy / file if file.startswith("motet_serve/") else copy / "motet" / file


def is_found(fault: Edit, copy: Path) -> bool:
    """Put a fault into the copy, run its test in a child, and take the fault out again.

    A fault is not found if the package no longer has the piece: write it anew.
    """
    places = [(fault.file, fault.old, fault.new), *fault.also]
    whole = {file: _place(copy, file).read_text() for file, _, _ in places}
    changed = dict(whole)
    for file, old, new in places:
        if old not in changed[file]:
            print(f"{file} has no {old!r}; expected it: write this fault anew")
            return False
        changed[file] = changed[file].replace(old, new)
    try:
        for file, text in changed.items():
            _place(copy, file).write_text(text)
        child = os.fork()
        if child == 0:
            os._exit(_failed(fault.test, copy))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    finally:
        for file, text in whole.items():
            _place(copy, file).write_text(text)


def _failed(test: str, copy: Path) -> int:
    """Run one test with the package of `copy`. Return pytest's exit code: 1 if it failed."""
    import pytest

    sys.dont_write_bytecode = True
    sys.path.insert(0, str(copy))
    os.chdir(ROOT)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        import motet

        assert Path(motet.__file__).is_relative_to(copy), motet.__file__
        code = int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", str(HERE / test)]))
    if "-v" in sys.argv:
        sys.__stdout__.write(said.getvalue()[-3000:])
    return code


def main(word: str = "") -> int:
    import peft
    import torch
    import transformers

    assert all((torch, peft, transformers))
    assert "motet" not in sys.modules
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(Path(folder))
        chosen = [fault for fault in FAULTS if word in fault.test]
        for fault in chosen:
            found = is_found(fault, copy)
            missed += [] if found else [fault]
            print("found " if found else "MISSED", fault.test, fault.file, flush=True)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} faults found")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(*[word for word in sys.argv[1:] if word != "-v"]))
