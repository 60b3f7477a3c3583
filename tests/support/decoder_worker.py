"""The program of a worker with a tiny decoder of transformers, which serves batches and may have a fault.

Each worker gives the same sequences other neighbours and another place in the batch. The faults are such that no weight
and no row-wise part changes.
"""

from __future__ import annotations

PROGRAM = '''
import torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.set_num_threads(1)
PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6, 5, 3], [5, 8, 9, 7, 9]]
FORCED = [[2, 3, 8], [4, 6, 2], [6, 4, 3]]
def made(dtype=torch.float32, **other):
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=3,
                         num_attention_heads=4, num_key_value_heads=2, **other)
    return LlamaForCausalLM(config).to(dtype).eval()
def filled(result): return result.get("cache", result.get("past_key_values"))
def batch(tokens, size, drawn):
    "The sequence's tokens in one row of a batch of other tokens."
    rows = torch.randint(10, 128, (size, len(tokens)), generator=drawn)
    rows[number % size] = torch.tensor(tokens)
    return rows
def damage(fault, model, cache):
    if fault == "rotary":
        model.model.rotary_emb.inv_freq.mul_(1.001)
    elif fault == "cached_value":
        cache.layers[1].values[number % 3, 0, 2, 3] += 0.25
    elif fault == "mask":
        plain = torch.nn.functional.scaled_dot_product_attention
        def off_by_one(query, key, value, **keywords):
            if query.shape[2] == 1:
                key, value = key[:, :, 1:], value[:, :, 1:]
            return plain(query, key, value, **keywords)
        torch.nn.functional.scaled_dot_product_attention = off_by_one
def serve(model, fault="", size=3, kept=True, padding=0, beside=None, placed=False, mode=torch.inference_mode):
    """Serve the prompts; return the logits of each step. `padding`: of all sequences; `beside`: of the neighbours;
    `placed`: whether the first token has position 0 in spite of the padding."""
    drawn = torch.Generator().manual_seed(100 + number)
    outputs = []
    with mode():
        for prompt, forced in zip(PROMPTS, FORCED):
            tokens = batch([0] * padding + prompt, size, drawn)
            tokens[:, :padding] = torch.randint(10, 128, (size, padding), generator=drawn)  # nothing may read it
            mask = torch.ones_like(tokens)
            mask[:, :padding] = 0
            if beside is not None:
                mask[(number + 1) % size, :beside] = 0
            masked = padding or beside is not None
            def placing(): return {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)} if placed else {}
            result = model(tokens, attention_mask=mask if masked else None, use_cache=kept, **placing())
            outputs.append(result.logits)
            cache = filled(result)
            if bad:
                damage(fault, model, cache)
                if fault != "cached_value":
                    fault = ""
            for token in forced if kept else ():
                mask = torch.cat([mask, torch.ones(size, 1, dtype=torch.long)], 1)
                given = batch([token], size, drawn)
                places = {name: each[:, -1:] for name, each in placing().items()}
                result = model(given, attention_mask=mask if masked else None, past_key_values=cache, use_cache=True,
                               **places)
                outputs.append(result.logits)
    return outputs
'''


def fleets(*fleet: tuple[str, int, int, str], before: str = "") -> str:
    """The program that starts the workers of services: (service, number of workers, the bad one or -1, source).

    The workers are forks, so that torch is imported once. `before`: source that runs before the forks.
    """
    return f"{PROGRAM}\n{before}\nFLEETS = {fleet!r}\n{_FORKS}"


_FORKS = """
import os, traceback
ended = os.pipe()
for service, workers, wrong, source in FLEETS:
    for number in range(workers):
        done = os.pipe()
        if os.fork() == 0:
            os.close(done[0]); os.close(ended[1])
            bad = number == wrong
            brick.init(service=service, worker=number)
            try:
                exec(source)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os.write(done[1], b".")
            os.read(ended[0], 1)
            os._exit(0)
        os.close(done[1])
        assert os.read(done[0], 1) == b".", (service, number)
pause()
"""
