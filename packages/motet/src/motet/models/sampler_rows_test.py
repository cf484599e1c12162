"""Rows of similar length share a batch, and a request is passed on when it is complete."""

from motet.core import Completion, Fault, Sampled, SampleRequest
from motet.models.sampler import CompletionRow, OpenRequests, batches
from motet.settings import Decode


def row(request: int, prompt: int, answer: int, index: int = 0) -> CompletionRow:
    return CompletionRow(request, index, (7,) * prompt, answer)


def test_batches_hold_so_many_rows_and_tokens_with_padding_shortest_prompts_first() -> None:
    rows = [row(0, 6, 4), row(1, 2, 3), row(2, 2, 8), row(3, 40, 1), row(4, 2, 3)]

    def numbers(most_rows: int, most_tokens: int) -> list[list[int]]:
        found = batches(rows, most_rows, most_tokens)
        return [[one.request for one in batch] for batch in found]

    assert numbers(9, 10_000) == [[1, 4, 2, 0, 3]]
    assert numbers(2, 10_000) == [[1, 4], [2, 0], [3]]
    # 3 rows of width 2 + 8 have 30 tokens; a fourth one would make the width 6 + 8.
    assert numbers(9, 30) == [[1, 4, 2], [0], [3]], "a row above the limit is a batch"
    assert numbers(9, 29) == [[1, 4], [2, 0], [3]]
    assert list(batches([], 9, 9)) == []


def completion(token: int) -> Completion:
    return Completion("p", "", "length", tokens=(token,), logprobs=(0.0,))


def test_a_request_is_passed_on_once_with_its_samples_in_the_order_of_its_keys() -> None:
    requests = [
        SampleRequest(id=(number,), policy="p", prompt="", decode=Decode(), keys=(1, 2))
        for number in range(3)
    ]
    fault, handed = Fault("sampler", "prompt_too_long", "no"), []
    open_ = OpenRequests(
        requests, [(7,), fault, (7,)], lambda place, answer: handed.append((place, answer))
    )
    assert handed == [(1, fault)], "at once"
    open_.take(row(0, 1, 1, index=1), completion(5))
    assert len(handed) == 1
    open_.take(row(0, 1, 1, index=0), completion(4))
    whole = Sampled((7,), (completion(4), completion(5)))
    assert handed[1:] == [(0, whole)]
    broken = Fault("sampler", "broken", "no")
    open_.take(row(2, 1, 1, index=1), broken)
    open_.take(row(2, 1, 1, index=0), completion(6))
    assert open_.answers() == [whole, fault, broken]
